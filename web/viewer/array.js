// An array of a portable view, or of a published site: planes, series and coordinates out of its chunks.
import "./codecs/index.js";
import * as zarr from "zarrita";
import { Coordinate } from "./coordinate.js";
import { Meaning } from "./meaning.js";
import { Told } from "./store.js";

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
  static async open(store, path) {
    const array = await opened(store, path);
    return new ShownArray(array);
  }

  constructor(array) {
    this.array = array;
    this.shape = array.shape;
    this.meaning = new Meaning(array.attrs, array.dtype);
    this.isText = array.dtype === "string";
    this.isByte = array.dtype === "uint8";
    this.isCount = /^uint|^int/.test(array.dtype);
    this.attributes = array.attrs;
  }

  // Size of the chunks that a picture of these axes needs, of at most so many elements a side.
  bytesOf(axes, most) {
    const lengths = this.shape.map((length, axis) => {
      const [shown, chunk] = [axes.includes(axis) ? Math.min(length, most) : 1, this.array.chunks[axis]];
      return Math.ceil(shown / chunk) * chunk;
    });
    return lengths.reduce((a, b) => a * b, 8);
  }

  async value(at) {
    return read(this.array, at);
  }

  // Values along some axes, at one place along the others: C order in the order of `axes`.
  async values(axes, at, windows = {}, signal = undefined) {
    const selection = this.shape.map((length, axis) => {
      if (!axes.includes(axis)) return at[axis];
      const [start, stop] = windows[axis] ?? [0, length];
      return zarr.slice(start, stop);
    });
    const { data: stored, shape, stride } = await read(this.array, selection, signal);
    const data = "get" in stored ? Array.from(stored) : stored; // of booleans and texts
    const order = [...axes].sort((a, b) => a - b);
    const steps = axes.map((axis) => stride[order.indexOf(axis)]);
    const lengths = axes.map((axis) => shape[order.indexOf(axis)]);
    return { data, lengths, steps };
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

  async series(axis, at) {
    const { data } = await this.values([axis], at);
    if (this.isText) return { values: Array.from(data) };
    const values = Float64Array.from(data, (stored) => this.meaning.of(stored));
    return { values, words: (i) => this.meaning.wordsOf(data[i]) };
  }
}

// The coordinate of a dimension: an array of one dimension that has its name. What its attributes say
// is there at once, its values when `reading` is done.
export async function coordinateOf(store, path, most) {
  const array = await opened(store, path);
  if (array.shape.length !== 1 || array.shape[0] > most || array.dtype === "string") return null;
  const meaning = new Meaning(array.attrs, array.dtype);
  const coordinate = new Coordinate(array.attrs, meaning.isPacked ? "float64" : array.dtype, path.split("/").at(-1));
  coordinate.reading = Promise.resolve(read(array, [zarr.slice(0, array.shape[0])])).then(({ data }) => {
    coordinate.take(Float64Array.from(data, (stored) => meaning.of(stored)));
  });
  coordinate.reading.catch(() => {}); // told to whoever waits for it
  return coordinate;
}
