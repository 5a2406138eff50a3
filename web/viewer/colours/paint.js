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

// Planes that each add a colour, the more of it the nearer to their upper limit; where one of them has no
// value, there is none.
export function mixed(planes, parts) {
  const adding = parts.map(({ colour, low, high }) => ({ low, span: high - low || 1, colour: rgbOf(colour) }));
  const pixels = new Uint32Array(planes[0].length);
  for (let i = 0; i < pixels.length; i++) {
    let red = 0;
    let green = 0;
    let blue = 0;
    for (let number = 0; number < adding.length; number++) {
      const { low, span, colour } = adding[number];
      const share = Math.min(1, Math.max(0, (planes[number][i] - low) / span));
      red += share * colour[0];
      green += share * colour[1];
      blue += share * colour[2];
    }
    if (red === red) pixels[i] = ((255 << 24) | (whole(blue) << 16) | (whole(green) << 8) | whole(red)) >>> 0; // no lists: there are millions
  }
  return pixels;
}

const whole = (level) => (level > 255 ? 255 : Math.round(level));

export function rgbOf(colour) {
  return [0, 2, 4].map((start) => Number.parseInt(colour.slice(start, start + 2), 16));
}
