// Keys of a Zarr store over HTTP: says in words why a chunk cannot be read, and keeps the last ones.

const KEPT_BYTES = 128 * 2 ** 20;

export class Store {
  constructor(address) {
    this.address = address.replace(/\/$/, "");
    this.kept = new Map();
    this.keptBytes = 0;
  }

  // The store of one array or group. zarrita.js itself takes paths for parts of an address: it would
  // lose what follows a "#" in a name, and find fill values where the chunks are not.
  under(path) {
    return new Store(`${this.address}/${path.split("/").map(encodeURIComponent).join("/")}`);
  }

  async get(key, options = {}) {
    return this.asked(key, {}, options);
  }

  async getRange(key, range, options = {}) {
    const wanted =
      "suffixLength" in range
        ? `bytes=-${range.suffixLength}`
        : `bytes=${range.offset}-${range.offset + range.length - 1}`;
    return this.asked(key, { range: wanted }, options);
  }

  asked(key, headers, { signal } = {}) {
    const name = `${key} ${headers.range ?? ""}`;
    const known = this.kept.get(name);
    if (known) return known;
    const answer = this.fetched(key, headers, signal);
    this.kept.set(name, answer);
    answer.then(
      (bytes) => this.count(bytes),
      () => this.kept.delete(name),
    );
    return answer;
  }

  count(bytes) {
    this.keptBytes += bytes?.byteLength ?? 0;
    if (this.keptBytes <= KEPT_BYTES) return;
    this.kept.clear();
    this.keptBytes = 0;
  }

  async fetched(key, headers, signal) {
    const response = await fetch(this.address + key, {
      headers: { accept: "application/octet-stream, application/json", ...headers },
      signal,
    });
    if (response.status === 404) return undefined; // a missing chunk: it reads as fill value
    if (!response.ok) throw new Error(await reason(response));
    return new Uint8Array(await response.arrayBuffer());
  }
}

async function reason(response) {
  const text = await response.text();
  try {
    return JSON.parse(text).reason;
  } catch {
    return text.trim() || `the server answers with status ${response.status}`;
  }
}

// Keys that kerchunk references say where to find: inline, or byte ranges that are read from the
// sources themselves. Source: fsspec's reference specification, version 1.
export class ReferenceStore {
  static async open(address) {
    const response = await fetch(address);
    if (!response.ok) throw new Error(`the references: status ${response.status}`);
    return new ReferenceStore((await response.json()).refs);
  }

  constructor(references, prefix = "") {
    this.references = references;
    this.prefix = prefix;
    this.version = 2;
  }

  under(path) {
    return new ReferenceStore(this.references, `${path}/`);
  }

  async get(key, { signal } = {}) {
    const reference = this.references[this.prefix + key.slice(1)];
    if (reference === undefined) return undefined; // a missing chunk: it reads as fill value
    if (typeof reference === "string") return inline(reference);
    if (!Array.isArray(reference)) return new TextEncoder().encode(JSON.stringify(reference));
    return ranged(...reference, signal);
  }

  // Where the chunk at some coords lies, as the server tells it.
  placeOf(path, coords) {
    const reference = this.references[`${path}/${coords.join(".")}`] ?? this.references[`${path}/${coords.join("/")}`];
    if (!Array.isArray(reference)) return { state: reference === undefined ? "missing" : "inline" };
    const [url, offset = 0, length = 0] = reference;
    return { state: "range", source: nameOf(url), offset, length };
  }
}

function nameOf(url) {
  return url.split(/[?#]/)[0].split("/").at(-1);
}

function inline(text) {
  if (!text.startsWith("base64:")) return new TextEncoder().encode(text);
  return Uint8Array.from(atob(text.slice(7)), (character) => character.charCodeAt(0));
}

async function ranged(url, offset, length, signal) {
  const isWhole = length === undefined;
  const headers = isWhole ? {} : { range: `bytes=${offset}-${offset + length - 1}` };
  const response = await fetch(url, { headers, signal }).catch(() => {
    throw new Error(`${nameOf(url)}: its server is away, or does not let this page read (CORS)`);
  });
  if (response.status !== (isWhole ? 200 : 206)) {
    throw new Error(`${nameOf(url)}, bytes ${offset} to ${offset + length}: status ${response.status}`);
  }
  const bytes = new Uint8Array(await response.arrayBuffer());
  if (!isWhole && bytes.length !== length) {
    throw new Error(`${nameOf(url)}: ${bytes.length} bytes where ${length} were asked for`);
  }
  return bytes;
}
