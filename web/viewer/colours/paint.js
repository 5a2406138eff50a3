// Values as pixels.

const CATEGORIES = [
  [230, 159, 0], [86, 180, 233], [0, 158, 115], [240, 228, 66], [0, 114, 178], [213, 94, 0],
  [204, 121, 167], [120, 120, 120], [140, 86, 75], [60, 60, 160],
];

export function packed([red, green, blue]) {
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

// The colour of each value; missing ones are transparent.
export function scaled(values, colours, { low, high, place }) {
  const table = Uint32Array.from(colours, packed);
  const first = place(low);
  const span = place(high) - first || 1;
  const pixels = new Uint32Array(values.length);
  for (let i = 0; i < values.length; i++) {
    const value = values[i];
    if (Number.isNaN(value)) continue;
    const number = Math.floor(((place(value) - first) / span) * 256);
    pixels[i] = table[number > 255 ? 255 : number > 0 ? number : 0];
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

// Three planes as red, green and blue, each between its own limits.
export function mixed(planes, limits) {
  return Uint32Array.from(planes[0], (_, i) => {
    const colour = planes.map((plane, band) => {
      const [low, high] = limits[band];
      return Math.min(255, Math.max(0, Math.round(((plane[i] - low) / (high - low || 1)) * 255)));
    });
    return colour.some(Number.isNaN) ? 0 : packed(colour);
  });
}
