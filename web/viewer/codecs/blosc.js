// Buffers of C-Blosc 1. Sources: its README_CHUNK_FORMAT; FastLZ's level 1 and what BloscLZ adds.
import { decompress as zstd } from "fzstd";
import { copyBack, lz4Block } from "./lz4.js";
import { unshuffle, unshuffleBits } from "./shuffle.js";

const HEADER = 16;
const [SHUFFLED, COPIED, BITS_SHUFFLED, NOT_SPLIT] = [1, 2, 4, 16];
const [MOST_SPLIT_SIZE, LEAST_SPLIT_BYTES] = [16, 128];
const FORMATS = ["BloscLZ", "LZ4", "Snappy", "zlib", "Zstandard"];

export async function blosc(data) {
  if (data.length < HEADER) throw new Error("a Blosc buffer is cut off");
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  const [flags, size] = [data[2], data[3]];
  const [n_bytes, block, stored] = [4, 8, 12].map((at) => view.getUint32(at, true));
  if (stored > data.length) throw new Error(`a Blosc buffer of ${stored} bytes is cut off at ${data.length}`);
  const out = new Uint8Array(n_bytes);
  if (flags & COPIED) {
    if (stored !== n_bytes + HEADER) throw new Error("a Blosc buffer is damaged");
    out.set(data.subarray(HEADER, stored));
    return out;
  }
  for (let number = 0; number * block < n_bytes; number++) {
    const start = view.getUint32(HEADER + 4 * number, true);
    const target = out.subarray(number * block, Math.min(n_bytes, (number + 1) * block));
    await oneBlock(view, start, stored, flags, target.length === block ? parts(flags, size, block) : 1, target);
    if (flags & SHUFFLED && size > 1) target.set(unshuffle(target, size));
    else if (flags & BITS_SHUFFLED && Math.floor(target.length / size) % 8 === 0) target.set(unshuffleBits(target, size));
  }
  return out;
}

// Whole blocks of small elements are compressed byte by byte of the element.
function parts(flags, size, block) {
  return !(flags & NOT_SPLIT) && size <= MOST_SPLIT_SIZE && block / size >= LEAST_SPLIT_BYTES ? size : 1;
}

async function oneBlock(view, start, stop, flags, n_parts, out) {
  const length = out.length / n_parts;
  for (let part = 0, at = start; part < n_parts; part++) {
    const n_bytes = at + 4 <= stop ? view.getInt32(at, true) : -1;
    if (n_bytes < 0 || at + 4 + n_bytes > stop) throw new Error("a block of a Blosc buffer is cut off");
    const data = new Uint8Array(view.buffer, view.byteOffset + at + 4, n_bytes);
    const target = out.subarray(part * length, (part + 1) * length);
    if (n_bytes === length) target.set(data);
    else await decoded(FORMATS[flags >> 5], data, target);
    at += 4 + n_bytes;
  }
}

async function decoded(format, data, out) {
  if (format === "LZ4") return lz4Block(data, out);
  if (format === "BloscLZ") return bloscLz(data, out);
  if (format !== "zlib" && format !== "Zstandard") throw new Error(`Blosc's format ${format} is not read here`);
  const found = format === "zlib" ? await inflated(data, "deflate") : zstd(data);
  if (found.length !== out.length) throw new Error("a block of a Blosc buffer is damaged");
  out.set(found);
}

const FAR = 8191;

function bloscLz(data, out) {
  let [at, to] = [0, 0];
  const next = () => {
    if (at >= data.length) throw new Error("a BloscLZ block is cut off");
    return data[at++];
  };
  let control = next() & 31;
  for (;;) {
    if (control < 32) {
      const n = control + 1;
      if (at + n > data.length || to + n > out.length) throw new Error("a BloscLZ block is damaged");
      out.set(data.subarray(at, at + n), to);
      [at, to] = [at + n, to + n];
    } else {
      let length = (control >> 5) + 2;
      let byte = 255;
      if (length === 9) while (byte === 255) length += byte = next();
      const low = next();
      let distance = ((control & 31) << 8) + low + 1;
      if (distance === FAR + 1) distance = FAR + 1 + (next() << 8) + next();
      copyBack(out, to, distance, length);
      to += length;
    }
    if (at >= data.length) break;
    control = next();
  }
  if (to !== out.length) throw new Error("a BloscLZ block is damaged");
}

async function inflated(data, format) {
  const stream = new Blob([data]).stream().pipeThrough(new DecompressionStream(format));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
