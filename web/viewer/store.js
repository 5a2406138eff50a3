// Keys of a Zarr store over HTTP: says in words why a chunk cannot be read, and keeps the last ones.

import { unshuffle } from "./codecs/shuffle.js";

const KEPT_BYTES = 128 * 2 ** 20;
const LEAST_BYTES = 100; // of what is kept of a chunk that is missing

const TYPES = {
  int8: Int8Array, int16: Int16Array, int32: Int32Array, int64: BigInt64Array, float32: Float32Array,
  uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, uint64: BigUint64Array, float64: Float64Array,
};
const encoded = (path) => path.split("/").map(encodeURIComponent).join("/");

// What is told in words: other errors are the browser's, or of what decodes.
export class Told extends Error {}

export class Store {
  // `documents`: the zarr.json of arrays by path, as far as they are known already; `native`: paths of
  // those whose chunks are read as they are stored, compressed. The server compresses the others.
  constructor(address, documents = {}, native = []) {
    this.address = address.replace(/\/$/, "");
    Object.assign(this, { documents, native, query: "" });
    this.kept = new Map(); // answers, those that were asked for last at the end
    this.keptBytes = 0;
  }

  // The store of one array or group. zarrita.js itself takes paths for parts of an address: it would
  // lose what follows a "#" in a name, and find fill values where the chunks are not.
  under(path) {
    const isNative = this.native.includes(path);
    const view = isNative ? this.beside("native") : this.address;
    const store = new Store(`${view}/${encoded(path)}`);
    store.document = this.documents[path];
    store.query = isNative ? "" : "?compressed";
    return store;
  }

  beside(name) {
    return this.address.replace(/[^/]*$/, name);
  }

  // A plane of an array, or every so many of its elements, as the server finds them.
  async look(path, at, signal) {
    this.looks ??= new Store(this.beside("look"));
    const bytes = await this.looks.asked(`/${encoded(path)}?at=${at}`, {}, { signal });
    if (!bytes) throw new Told("the server has no such array any more: load this page again");
    const start = 4 + new DataView(bytes.buffer, bytes.byteOffset, 4).getUint32(0, true);
    const { dtype, shape } = JSON.parse(new TextDecoder().decode(bytes.subarray(4, start)));
    const Type = TYPES[dtype];
    const values = unshuffle(bytes.subarray(start), Type.BYTES_PER_ELEMENT);
    return { data: new Type(values.buffer), shape, stride: [shape[1], 1] };
  }

  async get(key, options = {}) {
    if (key === "/zarr.json" && this.document) return new TextEncoder().encode(JSON.stringify(this.document));
    return this.asked(key, {}, options);
  }

  async getRange(key, range, options = {}) {
    const wanted =
      "suffixLength" in range
        ? `bytes=-${range.suffixLength}`
        : `bytes=${range.offset}-${range.offset + range.length - 1}`;
    return this.asked(key, { range: wanted }, options);
  }

  // What others asked for already is not asked for again, unless they gave it up.
  async asked(key, headers, { signal } = {}) {
    const name = `${key} ${headers.range ?? ""}`;
    const known = this.kept.get(name);
    if (known) {
      this.kept.delete(name);
      this.kept.set(name, known);
      return known.answer.catch((error) => (error.name === "AbortError" && !signal?.aborted ? this.asked(key, headers, { signal }) : Promise.reject(error)));
    }
    const entry = { answer: this.fetched(key, headers, signal), size: 0 };
    this.kept.set(name, entry);
    const isKept = () => this.kept.get(name) === entry;
    const forget = () => isKept() && this.kept.delete(name);
    signal?.addEventListener("abort", forget, { once: true });
    entry.answer.then((bytes) => {
      signal?.removeEventListener("abort", forget);
      if (isKept()) this.count(entry, bytes);
    }, forget);
    return entry.answer;
  }

  // Lets go of what was not asked for longest, if there is more than is kept.
  count(entry, bytes) {
    entry.size = bytes?.byteLength || LEAST_BYTES;
    this.keptBytes += entry.size;
    for (const [name, { size }] of this.kept) {
      if (this.keptBytes <= KEPT_BYTES) return;
      if (!size) continue; // on its way
      this.kept.delete(name);
      this.keptBytes -= size;
    }
  }

  // A series as the server reads it; `told` hears how much of it is there.
  async series(path, at, told, signal) {
    const response = await fetch(`${this.beside("series")}/${encoded(path)}?at=${at}`, { signal }).catch(unanswered);
    if (!response.ok) throw new Told(await reason(response));
    let [values, rest] = [null, ""];
    for (const lines = response.body.pipeThrough(new TextDecoderStream()).getReader(); ; ) {
      const { done, value } = await lines.read().catch(brokenOff);
      if (done) throw new Told("the answer of the server broke off");
      const parts = (rest + value).split("\n");
      rest = parts.pop();
      for (const part of parts.map((line) => JSON.parse(line))) {
        if (part.error) throw new Told(part.error);
        if (part.done) return values;
        values ??= new Float64Array(part.n);
        if (!part.values) continue;
        values.set(part.values.map((each) => each ?? NaN), part.start);
        told((part.start + part.values.length) / values.length);
      }
    }
  }

  async fetched(key, headers, signal) {
    const response = await fetch(this.address + key + this.query, {
      headers: { accept: "application/octet-stream, application/json", ...headers },
      priority: "low", // there may be hundreds: what else the page asks for goes first
      signal,
    }).catch(unanswered);
    if (response.status === 404) return undefined; // a missing chunk: it reads as fill value
    if (!response.ok) throw new Told(await reason(response));
    const body = await response.arrayBuffer().catch(brokenOff);
    return new Uint8Array(body);
  }
}

function instead(words) {
  return (error) => {
    throw error.name === "AbortError" ? error : new Told(words);
  };
}
const unanswered = instead("the server does not answer: is it still running, and this device online?");
const brokenOff = instead("the answer of the server broke off");

async function reason(response) {
  const text = await response.text();
  try {
    return JSON.parse(text).reason;
  } catch {
    return text.trim() || `the server answers with status ${response.status}`;
  }
}

export function nameOf(url) {
  const name = url.split(/[?#]/)[0].split("/").at(-1);
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}

// Bytes of a file on any server that lets this page read, if the file is what it was at the scan.
export async function fetchedRange(url, offset, length, stated = {}) {
  const response = await fetch(url, { headers: { range: `bytes=${offset}-${offset + length - 1}` } }).catch(() => {
    throw new Error(`${nameOf(url)}: its server is away, or does not let this page read (CORS)`);
  });
  if (response.status !== 206 && response.status !== 200) {
    throw new Error(`${nameOf(url)}, bytes ${offset} to ${offset + length}: status ${response.status}`);
  }
  const bytes = new Uint8Array(await response.arrayBuffer());
  checkStated(url, response, bytes, offset, stated);
  const found = response.status === 200 ? bytes.slice(offset, offset + length) : bytes; // a server without ranges
  if (found.length !== length) throw new Error(`${nameOf(url)}: ${found.length} bytes where ${length} were asked for`);
  return found;
}

// Size and tags, as far as the server lets this page see them.
function checkStated(url, response, bytes, offset, { size, ...tags }) {
  const range = /^bytes (\d+)-\d+\/(\d+)$/.exec(response.headers.get("content-range") ?? "");
  if (response.status === 206 && range && Number(range[1]) !== offset) {
    throw new Error(`${nameOf(url)}: the server sent another range than was asked for`);
  }
  const current = response.status === 200 ? bytes.length : range ? Number(range[2]) : size;
  const changed = size !== undefined && current !== size ? ["size"] : [];
  for (const [name, was] of Object.entries(tags)) {
    const now = response.headers.get(name);
    if (now !== null && withoutMark(now) !== withoutMark(was)) changed.push(name);
  }
  if (changed.length) {
    throw new Error(`${nameOf(url)} changed since it was scanned (${changed.join(", ")}): publish the page again`);
  }
}

const withoutMark = (tag) => tag.replace(/^W\//, "");
