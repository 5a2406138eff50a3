// Coastlines of Natural Earth (1:110m, public domain), as lines of longitude and latitude.
import land from "world-atlas/land-110m.json";

const { scale, translate } = land.transform;

export const LINES = land.arcs.map((arc) => {
  let [x, y] = [0, 0];
  return arc.map(([dx, dy]) => {
    x += dx;
    y += dy;
    return [x * scale[0] + translate[0], y * scale[1] + translate[1]];
  });
});

// The place of a value among ascending or descending ones, by linear interpolation.
function placeAmong(values, wanted) {
  const ascends = values[0] < values.at(-1);
  let [low, high] = [0, values.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (values[middle] <= wanted === ascends) low = middle;
    else high = middle;
  }
  return low + (wanted - values[low]) / (values[high] - values[low]);
}

// Draws coasts on a picture whose pixels are the elements of two coordinates.
export function drawCoasts(context, longitudes, latitudes) {
  if (longitudes.length < 2 || latitudes.length < 2) return;
  context.beginPath();
  for (const shift of [-360, 0, 360]) {
    for (const line of LINES) {
      let previous = null;
      for (const [longitude, latitude] of line) {
        const x = placeAmong(longitudes, longitude + shift) + 0.5;
        const y = placeAmong(latitudes, latitude) + 0.5;
        if (previous !== null && Math.abs(x - previous) < longitudes.length / 2) context.lineTo(x, y);
        else context.moveTo(x, y);
        previous = x;
      }
    }
  }
  context.stroke();
}
