// Small pictures in the list of catalogs: the first plane of an array, by its coarsest level.
import { coordinateOf, ShownArray } from "./array.js";
import { Composite, fitParts } from "./composite.js";
import { axesOfImage } from "./opened.js";
import { suited } from "./colours/choosing.js";
import { limitsOf, sorted } from "./colours/limits.js";
import { normOf } from "./colours/norms.js";
import { categorised, mixed, scaled } from "./colours/paint.js";
import { coloursOf } from "./colours/scales.js";
import { Store } from "./store.js";

const MOST_BYTES = 8e6;
const MOST_ALONG = 2048;

export async function preview(canvas) {
  const store = new Store(canvas.dataset.view);
  const level = JSON.parse(canvas.dataset.levels).at(-1);
  const { path, shape, coordinates } = level;
  const axes = axesOfImage(level);
  const array = await ShownArray.open(store, path);
  if (axes.some((axis) => shape[axis] > MOST_ALONG) || array.bytesOf(axes, MOST_ALONG) > MOST_BYTES) {
    canvas.hidden = true;
    canvas.dataset.ready = "left out";
    return;
  }
  const labels = coordinates[axes[0]];
  const up = labels ? await coordinateOf(store, labels, MOST_ALONG) : null;
  await up?.reading;
  const composite = Composite.of({ ...level, meaning: array.meaning, isByte: array.isByte });
  const parts = composite?.isSuited ? composite.shown : null;
  const first = shape.map(() => 0);
  const planes = await Promise.all((parts ? parts.map(({ at }) => first.with(composite.axis, at)) : [first]).map((at) => array.plane(...axes, at, {})));
  const [{ height, width }] = planes;
  const values = planes.map((plane) => plane.values);
  if (parts) fitParts(parts, values);
  const pixels = parts ? mixed(values, parts) : painted(values[0], array, path);
  const isTurned = Boolean(up?.up && (up.up > 0) === up.ascends);
  const rows = Array.from({ length: height }, (_, row) => (isTurned ? height - 1 - row : row));
  const image = new ImageData(width, height);
  const shown = new Uint32Array(image.data.buffer);
  rows.forEach((row, number) => shown.set(pixels.subarray(row * width, (row + 1) * width), number * width));
  Object.assign(canvas, { width, height });
  canvas.getContext("2d").putImageData(image, 0, 0);
  canvas.dataset.ready = "drawn";
}

function painted(values, { meaning, attributes, isCount }, path) {
  if (meaning.flags) return categorised(values, meaning.flags);
  const inOrder = sorted(values);
  const range = inOrder.length ? [inOrder[0], inOrder.at(-1)] : null;
  const fit = suited({ attributes, name: path.split("/").at(-1), isCount, range });
  const [low, high] = limitsOf(values, fit, meaning.units) ?? [0, 1];
  return scaled(values, coloursOf(fit.scale), normOf(low > 0 ? fit.norm : "linear", low, high));
}
