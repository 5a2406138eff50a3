// Colours of values: 256 steps between stops, by their place between low and high.

const STOPS = {
  steady: [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]],
  diverging: [[33, 102, 172], [146, 197, 222], [247, 247, 247], [244, 165, 130], [178, 24, 43]],
  grey: [[0, 0, 0], [255, 255, 255]],
};
export const SCALES = [["steady", "dark to light"], ["diverging", "blue to red"], ["grey", "grey"]];

const CATEGORIES = [
  [230, 159, 0], [86, 180, 233], [0, 158, 115], [240, 228, 66], [0, 114, 178], [213, 94, 0],
  [204, 121, 167], [120, 120, 120], [140, 86, 75], [60, 60, 160],
];

export function steps(name) {
  const stops = STOPS[name] ?? STOPS.steady;
  return Array.from({ length: 256 }, (_, number) => {
    const place = (number / 255) * (stops.length - 1);
    const low = Math.min(Math.floor(place), stops.length - 2);
    return stops[low].map((a, i) => Math.round(a + (stops[low + 1][i] - a) * (place - low)));
  });
}

function packed([red, green, blue]) {
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

// The colour of each value as a pixel; missing ones are transparent.
export function scaled(values, name, low, high) {
  const table = Uint32Array.from(steps(name), packed);
  const span = high - low || 1;
  const pixels = new Uint32Array(values.length);
  for (let i = 0; i < values.length; i++) {
    const value = values[i];
    if (Number.isNaN(value)) continue;
    const place = Math.floor(((value - low) / span) * 256);
    pixels[i] = table[Math.min(255, Math.max(0, place))];
  }
  return pixels;
}

export function categoryColour(number) {
  return CATEGORIES[number % CATEGORIES.length];
}

export function categorised(values, flags) {
  const table = new Map([...flags.keys()].map((value, i) => [value, packed(categoryColour(i))]));
  return Uint32Array.from(values, (value) => table.get(value) ?? 0);
}

// Three planes as red, green and blue; `top` is what is brightest.
export function mixed(planes, top) {
  return Uint32Array.from(planes[0], (_, i) => {
    const colour = planes.map((plane) => Math.min(255, Math.max(0, Math.round((plane[i] / top) * 255))));
    return colour.some(Number.isNaN) ? 0 : packed(colour);
  });
}

// The least and greatest finite value; null where there is none.
export function rangeOf(values) {
  let low = Infinity;
  let high = -Infinity;
  for (let i = 0; i < values.length; i++) { // an iterator takes much longer
    const value = values[i];
    if (value < low && value > -Infinity) low = value;
    if (value > high && value < Infinity) high = value;
  }
  return low <= high ? [low, high] : null;
}
