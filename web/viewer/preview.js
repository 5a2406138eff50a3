// Small pictures in the list of catalogs: the first plane of an array, by its coarsest level.
import { suited } from "./colours/choosing.js";
import { limitsOf, normOf, sorted } from "./colours/limits.js";
import { categorised, mixed, scaled } from "./colours/paint.js";
import { coloursOf } from "./colours/scales.js";
import { Composite, fitParts } from "./composite.js";
import { Frame } from "./frame.js";
import { placeOnEarth } from "./map/reading.js";
import { axesOfImage, Opened } from "./opened.js";
import { Store } from "./store.js";

const MOST_BYTES = 8e6;
const MOST_ALONG = 2048;
const ROOM = { width: 192, height: 77 };

export async function preview(canvas) {
  const store = new Store(canvas.dataset.view);
  const level = JSON.parse(canvas.dataset.levels).at(-1);
  const axes = axesOfImage(level);
  const labels = level.coordinates.map((path, axis) => (axes.includes(axis) ? path : null));
  const opened = await Opened.level(store, { ...level, coordinates: labels });
  if (axes.some((axis) => opened.shape[axis] > MOST_ALONG) || opened.array.bytesOf(axes, MOST_ALONG) > MOST_BYTES) {
    canvas.hidden = true;
    canvas.dataset.ready = "left out";
    return;
  }
  const [picture, isSouthFirst] = await Promise.all([painted(opened, axes), southFirst(store, opened, axes), opened.labels]);
  const [up, across] = axes.map((axis) => opened.coordinates[axis]);
  const frame = new Frame({ rows: picture.height, columns: picture.width, up, across, isSouthFirst });
  frame.fit(ROOM);
  Object.assign(canvas, { width: frame.width, height: frame.height });
  frame.paint(canvas.getContext("2d"), 1, picture);
  canvas.dataset.ready = "drawn";
}

// Told where only two-dimensional latitudes say it.
async function southFirst(store, opened, [rows, columns]) {
  if (!opened.earth?.latitude) return undefined;
  const windows = Object.fromEntries([rows, columns].map((axis) => [axis, [0, opened.shape[axis]]]));
  const place = await placeOnEarth(store, opened, { rows, columns }, windows).catch(() => null); // then as stored
  return place?.isSouthFirst;
}

// The first plane, or what is composed of several, on a canvas of a pixel an element.
async function painted(opened, axes) {
  const { array, path, shape, meaning } = opened;
  const composite = Composite.of(opened);
  const parts = composite?.isSuited ? composite.shown : null;
  const first = shape.map(() => 0);
  const places = parts ? parts.map(({ at }) => first.with(composite.axis, at)) : [first];
  const planes = await Promise.all(places.map((at) => array.plane(...axes, at, {})));
  const values = planes.map((plane) => plane.values);
  if (parts) fitParts(parts, values);
  const pixels = parts ? mixed(values, parts) : meaning.flags ? categorised(values[0], meaning.flags) : coloured(values[0], array, path);
  const [{ height, width }] = planes;
  const picture = new OffscreenCanvas(width, height);
  picture.getContext("2d").putImageData(new ImageData(new Uint8ClampedArray(pixels.buffer), width, height), 0, 0);
  return picture;
}

function coloured(values, { meaning, attributes, isCount }, path) {
  const inOrder = sorted(values);
  const range = inOrder.length ? [inOrder[0], inOrder.at(-1)] : null;
  const fit = suited({ attributes, name: path.split("/").at(-1), isCount, range });
  const [low, high] = limitsOf(values, fit, meaning.units) ?? [0, 1];
  return scaled(values, coloursOf(fit.scale), normOf(low > 0 ? fit.norm : "linear", low, high));
}
