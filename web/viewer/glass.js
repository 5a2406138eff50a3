// A closer look: how near, and what part of the whole picture is in the middle, in fractions of it.

export const MOST_ZOOM = 64;
export const WHOLE = { zoom: 1, x: 0.5, y: 0.5 };

export function held({ zoom, x, y }) {
  const near = Math.min(MOST_ZOOM, Math.max(1, zoom));
  const inside = (middle) => Math.min(1 - 0.5 / near, Math.max(0.5 / near, middle));
  return { zoom: near, x: inside(x), y: inside(y) };
}

// Nearer or further; what is at (x, y), in fractions of the canvas, stays there. 0 shows everything.
export function nearer(glass, factor, x = 0.5, y = 0.5) {
  if (factor === 0) return WHOLE;
  const zoom = Math.min(MOST_ZOOM, Math.max(1, glass.zoom * factor));
  const keep = (middle, at) => middle + (at - 0.5) * (1 / glass.zoom - 1 / zoom);
  return held({ zoom, x: keep(glass.x, x), y: keep(glass.y, y) });
}

// Moved by fractions of the canvas.
export function moved(glass, x, y) {
  return held({ ...glass, x: glass.x - x / glass.zoom, y: glass.y - y / glass.zoom });
}
