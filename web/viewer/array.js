// An array of a portable view, or of a published site: planes, series and coordinates out of its chunks.
import "./codecs/index.js";
import * as zarr from "zarrita";
import { Coordinate } from "./coordinate.js";
import { Meaning } from "./meaning.js";
import { Told } from "./store.js";

const LARGE_BYTES = 1e6;

function opened(store, path) {
  return store.array?.(path) ?? zarr.open.v3(zarr.root(store.under(path)), { kind: "array" });
}

// What is not told in words is no chunk: it was cut or changed on its way, or is damaged.
async function read(array, selection, signal) {
  if (array.read) return array.read(selection);
  return zarr.get(array, selection, { signal }).catch((error) => {
    if (error.name === "AbortError" || error instanceof Told) throw error;
    if (error.cause instanceof Told) throw error.cause;
    throw new Told("what the server sent cannot be decoded: try again, or look with gridref verify whether the file is damaged");
  });
}

export class ShownArray {
  // With `steps`, first element and step of the last dimensions, it is a look at the array.
  static async open(store, path, steps = [], attributes = {}) {
    const array = await opened(store, path);
    const served = store.series && ((at, told, signal) => store.series(path, at, told, signal));
    if (steps.every(([, step]) => step === 1)) return new ShownArray(array, served, attributes);
    const others = array.shape.slice(steps.length).map(() => [0, 1]);
    return new LookedAt(array, served, attributes, [...others, ...steps], (at, signal) => store.look(path, at, signal));
  }

  // `served` has the server read a series, if there is one; `attributes` are those that the array's own do not say.
  constructor(array, served, attributes = {}) {
    Object.assign(this, { array, served });
    this.shape = array.shape;
    this.attributes = { ...array.attrs, ...attributes };
    this.meaning = new Meaning(this.attributes, array.dtype);
    this.isText = array.dtype === "string";
    this.isByte = array.dtype === "uint8";
    this.isCount = /^uint|^int/.test(array.dtype);
  }

  // Size of the chunks that a picture of these axes needs, of at most so many elements a side.
  bytesOf(axes, most) {
    const lengths = this.shape.map((length, axis) => {
      const [shown, chunk] = [axes.includes(axis) ? Math.min(length, most) : 1, this.array.chunks[axis]];
      return Math.ceil(shown / chunk) * chunk;
    });
    return lengths.reduce((a, b) => a * b, 8);
  }

  // Bytes that a series takes from files on its way here; undefined where a server is asked, which compresses.
  async travelling(axis, at) {
    return this.array.travelling?.(this.selection([axis], at));
  }

  async value(at) {
    return read(this.array, this.stored(at));
  }

  // The array's own numbers of an element, and of those in a window.
  stored(at) {
    return at;
  }

  slice(axis, [start, stop]) {
    return zarr.slice(start, stop);
  }

  selection(axes, at, windows = {}) {
    const place = this.stored(at);
    return this.shape.map((length, axis) => (axes.includes(axis) ? this.slice(axis, windows[axis] ?? [0, length]) : place[axis]));
  }

  // Values along some axes, at one place along the others: C order in the order of `axes`.
  async values(axes, at, windows = {}, signal = undefined) {
    const { data: stored, shape, stride } = await this.read(this.selection(axes, at, windows), signal);
    const data = "get" in stored ? Array.from(stored) : stored; // of booleans and texts
    const order = [...axes].sort((a, b) => a - b);
    const steps = axes.map((axis) => stride[order.indexOf(axis)]);
    const lengths = axes.map((axis) => shape[order.indexOf(axis)]);
    return { data, lengths, steps };
  }

  read(selection, signal) {
    return read(this.array, selection, signal);
  }

  async plane(rows, columns, at, windows, signal) {
    const { data, lengths, steps } = await this.values([rows, columns], at, windows, signal);
    const [height, width] = lengths;
    const found = new Float64Array(height * width);
    for (let row = 0; row < height; row++) {
      for (let column = 0; column < width; column++) {
        found[row * width + column] = this.meaning.of(data[row * steps[0] + column * steps[1]]);
      }
    }
    const words = (row, column) => this.meaning.wordsOf(data[row * steps[0] + column * steps[1]]);
    return { values: found, words, height, width };
  }

  // Whether a series costs less if the server reads it: few chunks are read here, which may be kept.
  // Numbers of the server have 64 bits at most with a point.
  isServed(axis) {
    return Boolean(this.served) && !this.isText && !/64$/.test(this.isCount && this.array.dtype) && this.bytesOf([axis], Infinity) > LARGE_BYTES;
  }

  async series(axis, at, told, signal) {
    if (this.isServed(axis)) {
      const { start, stop, step } = this.slice(axis, [0, this.shape[axis]]);
      const range = `${start}:${stop}:${step ?? 1}`;
      const values = await this.served(this.stored(at).map((each, other) => (other === axis ? range : each)).join(","), told, signal);
      return { values, words: (i) => this.meaning.words(values[i]) };
    }
    const { data } = await this.values([axis], at);
    if (this.isText) return { values: Array.from(data) };
    const values = Float64Array.from(data, (stored) => this.meaning.of(stored));
    return { values, words: (i) => this.meaning.wordsOf(data[i]) };
  }
}

// Every so many elements of an array: the server picks those of a plane out of their chunks.
class LookedAt extends ShownArray {
  constructor(array, served, attributes, steps, look) {
    super(array, served, attributes);
    Object.assign(this, { steps, look });
    this.shape = array.shape.map((length, axis) => Math.ceil((length - steps[axis][0]) / steps[axis][1]));
  }

  bytesOf(axes, most) {
    if (axes.length < 2) return new ShownArray(this.array).bytesOf(axes, most);
    return axes.reduce((n, axis) => n * Math.min(this.shape[axis], most), 8);
  }

  stored(at) {
    return at.map((number, axis) => this.steps[axis][0] + number * this.steps[axis][1]);
  }

  slice(axis, [start, stop]) {
    const [first, step] = this.steps[axis];
    return zarr.slice(first + start * step, first + (stop - 1) * step + 1, step);
  }

  read(selection, signal) {
    const along = selection.filter((each) => typeof each !== "number");
    if (along.length !== 2 || along.every(({ step }) => (step ?? 1) === 1)) return super.read(selection, signal);
    const at = selection.map((each) => (typeof each === "number" ? each : `${each.start}:${each.stop}:${each.step ?? 1}`));
    return this.look(at.join(","), signal);
  }
}

// The coordinate of a dimension: an array of one dimension that has its name. What its attributes say
// is there at once, its values when `reading` is done.
export async function coordinateOf(store, path, most, [first, step] = [0, 1]) {
  const array = await opened(store, path);
  if (array.shape.length !== 1 || array.shape[0] > most || array.dtype === "string") return null;
  const meaning = new Meaning(array.attrs, array.dtype);
  const coordinate = new Coordinate(array.attrs, meaning.isPacked ? "float64" : array.dtype, path.split("/").at(-1));
  coordinate.reading = Promise.resolve(read(array, [zarr.slice(0, array.shape[0])])).then(({ data }) => {
    const values = Float64Array.from(data, (stored) => meaning.of(stored));
    coordinate.take(step === 1 ? values : values.filter((_, number) => number >= first && (number - first) % step === 0));
  });
  coordinate.reading.catch(() => {}); // told to whoever waits for it
  return coordinate;
}
