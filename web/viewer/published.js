// Arrays of a published site: their stored chunks are read from the sources, by tables of where each
// one lies. Format: gridref.adapters.web.chunk_files, which writes the tables.
import * as zarr from "zarrita";
import { fetchedRange, nameOf } from "./store.js";

const RECORD_BYTES = 24; // source, offset, length
const [MISSING, INLINE] = [-1, -2];
const PAGE_RECORDS = 1024;
const KEPT_BYTES = 128 * 2 ** 20;
const MOST_RAW_BYTES = 2 ** 20; // of larger pieces of plain numbers only the rows that are shown are read
const MOST_COUNTED = 10_000; // chunks whose sizes are looked up before they are read
const MANY_ROWS = 2 ** 31;
const TYPES = {
  bool: Uint8Array, int8: Int8Array, uint8: Uint8Array, int16: Int16Array, uint16: Uint16Array,
  int32: Int32Array, uint32: Uint32Array, int64: BigInt64Array, uint64: BigUint64Array,
  float16: Float32Array, float32: Float32Array, float64: Float64Array, string: Array,
};

export class PublishedStore {
  constructor(address) {
    this.address = address.replace(/\/$/, "");
    this.opened = new Map();
  }

  array(path) {
    if (!this.opened.has(path)) {
      const address = `${this.address}/${path.split("/").map(encodeURIComponent).join("/")}`;
      this.opened.set(path, PublishedArray.open(address));
    }
    return this.opened.get(path);
  }

  async placeOf(path, at) {
    return (await this.array(path)).placeOf(at);
  }
}

class PublishedArray {
  static async open(address) {
    const response = await fetch(`${address}.json`).catch(() => {
      throw new Error("the site does not answer: is this device online?");
    });
    if (!response.ok) throw new Error(`the table of its chunks: status ${response.status}`);
    return new PublishedArray(await response.json(), `${address}.bin`);
  }

  constructor(document, records) {
    Object.assign(this, document);
    this.attrs = document.attributes;
    this.dtype = document.data_type;
    this.records = new Records(records, document.n_records);
    this.fill = fillOf(document.fill_value, this.dtype);
    this.starts = this.edges.map((lengths) => lengths.reduce((all, length) => [...all, all.at(-1) + length], [0]));
    this.chunks = this.shape.map((_, axis) => Math.max(1, ...this.encodings.map(({ chunk_shape }) => chunk_shape[axis])));
    this.decoders = new Map();
    this.kept = new Map();
    this.keptBytes = 0;
  }

  // As zarr.get: integers, and slices from start to stop.
  async read(selection) {
    const bounds = selection.map((each) => (typeof each === "number" ? [each, each + 1] : [each.start, each.stop]));
    const lengths = bounds.map(([start, stop]) => stop - start);
    const stride = stridesOf(lengths);
    const size = lengths.reduce((a, b) => a * b, 1);
    const data = new TYPES[this.dtype](size).fill(this.fill);
    const parts = product(bounds.map((bound, axis) => this.blocksWithin(axis, ...bound)));
    await Promise.all(parts.flatMap((part) => this.ofBlock(part, data, stride)));
    const shown = selection.map((each, axis) => [each, axis]).filter(([each]) => typeof each !== "number");
    if (!shown.length) return data[0];
    return { data, shape: shown.map(([, axis]) => lengths[axis]), stride: shown.map(([, axis]) => stride[axis]) };
  }

  // Bytes of the files that a selection reads, as they are stored; of very many chunks by some of them.
  async travelling(selection) {
    const bounds = selection.map((each) => (typeof each === "number" ? [each, each + 1] : [each.start, each.stop]));
    const pieces = product(bounds.map((bound, axis) => this.blocksWithin(axis, ...bound))).flatMap((part) => this.piecesOfBlock(part));
    const some = pieces.filter((_, i) => i % Math.ceil(pieces.length / MOST_COUNTED) === 0);
    const sizes = await Promise.all(some.map(async ({ block, encoding, piece }) => {
      const { row, shape, first, stop } = placed(block, encoding, piece);
      const { source, length } = await this.records.at(row);
      return source === MISSING ? 0 : shape.length ? (length * (stop - first)) / shape[0] : length;
    }));
    return (sizes.reduce((a, b) => a + b, 0) * pieces.length) / Math.max(1, some.length);
  }

  // Which blocks a range touches along an axis: their number, first and last element, and where these go.
  blocksWithin(axis, start, stop) {
    const starts = this.starts[axis];
    const found = [];
    for (let block = placeIn(starts, start); block < starts.length - 1 && starts[block] < stop; block++) {
      const [low, high] = [Math.max(start, starts[block]), Math.min(stop, starts[block + 1])];
      if (low < high) found.push({ block, first: low - starts[block], n: high - low, to: low - start });
    }
    return found;
  }

  // The reading of each stored chunk of a block that a selection needs.
  ofBlock(part, data, stride) {
    return this.piecesOfBlock(part).map(async ({ block, encoding, piece }) => {
      const chunk = await this.chunk(block, encoding, piece);
      copy(chunk, piece, data, stride);
    });
  }

  piecesOfBlock(part) {
    const number = part.reduce((all, { block }, axis) => all * (this.starts[axis].length - 1) + block, 0);
    const block = this.blockAt(number);
    const encoding = this.encodings[block.encoding];
    if (encoding === undefined) return [];
    return product(part.map((along, axis) => piecesOf(along, block, encoding, axis))).map((piece) => ({ block, encoding, piece }));
  }

  // A column is one value for all blocks, or a list of them.
  blockAt(number) {
    const of = ([name, column]) => [name, column.same === undefined ? column.each[number] : column.same];
    return Object.fromEntries(Object.entries(this.blocks).map(of));
  }

  // A stored chunk decoded, and from which of its rows on: of large plain ones only those needed.
  async chunk(block, encoding, piece) {
    const { row, shape, first, stop } = placed(block, encoding, piece);
    const key = `${row} ${first} ${stop}`;
    if (!this.kept.has(key)) {
      const coming = this.decoded(row, encoding, shape, first, stop);
      this.kept.set(key, coming);
      coming.then(({ data }) => this.count(data), () => this.kept.delete(key));
    }
    return this.kept.get(key);
  }

  count(data) {
    this.keptBytes += data.byteLength ?? 8 * data.length;
    if (this.keptBytes <= KEPT_BYTES) return;
    this.kept.clear();
    this.keptBytes = 0;
  }

  async decoded(row, encoding, shape, first, stop) {
    const size = shape.reduce((a, b) => a * b, 1);
    const record = await this.records.at(row);
    if (record.source === MISSING) {
      const fill = encoding.fill_value === undefined ? this.fill : fillOf(encoding.fill_value, this.dtype);
      return { data: new TYPES[this.dtype](size).fill(fill), stride: stridesOf(shape), first: 0 };
    }
    const part = stop - first === shape[0] || !shape.length ? record : rowsOf(record, shape[0], first, stop);
    const wanted = shape.length ? [stop - first, ...shape.slice(1)] : [1];
    const bytes = await this.bytesOf(part);
    try {
      const chunk = await this.decoder(encoding, wanted).decode(row, prefixed(encoding, bytes));
      if (chunk.data.length !== wanted.reduce((a, b) => a * b, 1)) throw new Error("its size is another");
      return { data: plain(chunk.data), stride: chunk.stride, first };
    } catch (error) {
      throw new Error(`${this.inWords(part)} cannot be decoded: ${(error.cause ?? error).message}`);
    }
  }

  decoder(encoding, shape) {
    const key = `${this.encodings.indexOf(encoding)} ${shape}`;
    if (!this.decoders.has(key)) this.decoders.set(key, new Decoder(this.dtype, encoding.codecs, shape));
    return this.decoders.get(key);
  }

  bytesOf({ source, offset, length }) {
    if (source === INLINE) return this.records.inline(offset, length);
    return fetchedRange(this.sources[source], offset, length, this.stated?.[source]);
  }

  inWords({ source, offset, length }) {
    if (source === INLINE) return "a chunk in the site itself";
    return `${nameOf(this.sources[source])}, bytes ${offset} to ${offset + length}`;
  }

  // Where an element's chunk lies, as the server tells it.
  async placeOf(at) {
    const part = at.map((index, axis) => this.blocksWithin(axis, index, index + 1)[0]);
    const block = this.blockAt(part.reduce((all, { block }, axis) => all * (this.starts[axis].length - 1) + block, 0));
    const encoding = this.encodings[block.encoding];
    if (encoding === undefined) return { state: "missing" };
    const coords = part.map((along, axis) => piecesOf(along, block, encoding, axis)[0].chunk);
    const { source, offset, length } = await this.records.at(rowOf(block, coords));
    if (source === MISSING) return { state: "missing" };
    if (source === INLINE) return { state: "inline" };
    return { state: "range", source: nameOf(this.sources[source]), offset, length };
  }
}

// Where each stored chunk lies: rows of a file, read a page at a time, and inline bytes behind them.
class Records {
  constructor(address, n_records) {
    Object.assign(this, { address, n_records, pages: new Map() });
  }

  async at(row) {
    const page = Math.floor(row / PAGE_RECORDS);
    if (!this.pages.has(page)) {
      const first = page * PAGE_RECORDS;
      const n = Math.min(PAGE_RECORDS, this.n_records - first);
      this.pages.set(page, fetchedRange(this.address, first * RECORD_BYTES, n * RECORD_BYTES));
    }
    const bytes = await this.pages.get(page);
    const view = new DataView(bytes.buffer, bytes.byteOffset + (row % PAGE_RECORDS) * RECORD_BYTES);
    const [source, offset, length] = [0, 8, 16].map((start) => view.getFloat64(start, true));
    return { source, offset, length };
  }

  inline(offset, length) {
    return length ? fetchedRange(this.address, this.n_records * RECORD_BYTES + offset, length) : new Uint8Array();
  }
}

// zarrita.js's codec pipeline for chunks of one shape, by a store that holds the bytes of one key.
class Decoder {
  constructor(dtype, codecs, shape) {
    this.waiting = new Map();
    const store = { get: async (key) => (key.endsWith("/zarr.json") ? described(dtype, codecs, shape) : this.waiting.get(key)) };
    this.array = zarr.open.v3(zarr.root(store), { kind: "array" });
    this.behind = "/0".repeat(shape.length - 1);
    this.others = shape.slice(1).map(() => 0);
  }

  async decode(row, bytes) {
    const key = `/c/${row}${this.behind}`;
    this.waiting.set(key, bytes);
    try {
      return await (await this.array).getChunk([row, ...this.others]);
    } finally {
      this.waiting.delete(key);
    }
  }
}

function described(dtype, codecs, shape) {
  return new TextEncoder().encode(JSON.stringify({
    zarr_format: 3,
    node_type: "array",
    shape: [MANY_ROWS * shape[0], ...shape.slice(1)],
    data_type: dtype,
    chunk_grid: { name: "regular", configuration: { chunk_shape: shape } },
    chunk_key_encoding: { name: "default", configuration: { separator: "/" } },
    fill_value: dtype === "string" ? "" : dtype === "bool" ? false : 0,
    codecs,
    attributes: {},
  }));
}

// What a range of a block's elements needs along an axis, chunk by chunk. Element i of a block is
// element origin + step * i of the stored array.
function piecesOf({ first, n, to }, { origin, step }, { chunk_shape }, axis) {
  const pieces = [];
  for (let i = 0; i < n; i++) {
    const stored = origin[axis] + step[axis] * (first + i);
    const chunk = Math.floor(stored / chunk_shape[axis]);
    if (pieces.at(-1)?.chunk !== chunk) pieces.push({ chunk, inside: [], to: to + i });
    pieces.at(-1).inside.push(stored - chunk * chunk_shape[axis]);
  }
  return pieces;
}

// The row of a piece's stored chunk, its shape, and which of its rows are needed.
function placed(block, encoding, piece) {
  const coords = piece.map(({ chunk }) => chunk);
  const shape = decodedShape(block, encoding, coords);
  const [first, stop] = rowsNeeded(encoding, shape, piece);
  return { row: rowOf(block, coords), shape, first, stop };
}

function decodedShape({ stored_shape }, { chunk_shape, truncated }, coords) {
  if (!truncated) return chunk_shape;
  return chunk_shape.map((length, axis) => Math.min(length, stored_shape[axis] - coords[axis] * length));
}

function rowOf({ first_row, row_stride }, coords) {
  return coords.reduce((row, chunk, axis) => row + chunk * row_stride[axis], first_row);
}

function rowsNeeded({ is_plain, item_bytes }, shape, piece) {
  const n_bytes = shape.reduce((a, b) => a * b, item_bytes);
  if (!is_plain || !shape.length || n_bytes <= MOST_RAW_BYTES) return [0, shape[0] ?? 1];
  const [{ inside }] = piece;
  return [Math.min(...inside), Math.max(...inside) + 1];
}

function rowsOf({ source, offset, length }, n, first, stop) {
  const row = length / n;
  return { source, offset: offset + first * row, length: (stop - first) * row };
}

// Puts a chunk's elements where they belong in what was asked for.
function copy({ data, stride, first }, piece, out, outStride) {
  const last = piece.length - 1;
  const along = (axis, from, to) => {
    if (axis > last) {
      out[to] = data[from];
      return;
    }
    const { inside, to: start } = piece[axis];
    for (let i = 0; i < inside.length; i++) {
      const at = inside[i] - (axis === 0 ? first : 0);
      along(axis + 1, from + at * stride[axis], to + (start + i) * outStride[axis]);
    }
  };
  along(0, 0, 0);
}

// The last of ascending starts that is not above a place; of equal ones the last.
function placeIn(starts, wanted) {
  let [low, high] = [0, starts.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (starts[middle] <= wanted) low = middle;
    else high = middle;
  }
  return low;
}

function product(lists) {
  return lists.reduce((all, list) => all.flatMap((head) => list.map((each) => [...head, each])), [[]]);
}

function stridesOf(shape) {
  return shape.map((_, axis) => shape.slice(axis + 1).reduce((a, b) => a * b, 1));
}

// A fill value is text, or the base64 of a number's little-endian bytes.
function fillOf(value, dtype) {
  if (dtype === "string") return value;
  const bytes = Uint8Array.from(atob(value), (character) => character.charCodeAt(0));
  if (dtype === "float16") return halfOf(new DataView(bytes.buffer).getUint16(0, true));
  return new TYPES[dtype](bytes.buffer)[0];
}

function halfOf(bits) {
  const [sign, exponent, fraction] = [bits >> 15 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return exponent ? sign * 2 ** (exponent - 15) * (1 + fraction / 1024) : sign * 2 ** -24 * fraction;
}

function prefixed({ prefix }, bytes) {
  if (!prefix) return bytes;
  const head = Uint8Array.from(atob(prefix), (character) => character.charCodeAt(0));
  const all = new Uint8Array(head.length + bytes.length);
  all.set(head);
  all.set(bytes, head.length);
  return all;
}

// Booleans are numbers here.
function plain(data) {
  return "get" in data ? Uint8Array.from(data, Number) : data;
}
