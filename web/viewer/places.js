// Between elements and values of a coordinate: element `i` reaches from place `i` to `i + 1`.

// The place of a value among ascending or descending ones, by linear interpolation.
export function placeOf(values, wanted) {
  const ascends = values[0] < values.at(-1);
  let [low, high] = [0, values.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (values[middle] <= wanted === ascends) low = middle;
    else high = middle;
  }
  return low + (wanted - values[low]) / (values[high] - values[low]) + 0.5;
}

// The value at a place, straight on beyond the first and the last.
export function valueAt(values, place) {
  const low = Math.min(Math.max(0, Math.floor(place - 0.5)), values.length - 2);
  return values[low] + (place - 0.5 - low) * (values[low + 1] - values[low]);
}
