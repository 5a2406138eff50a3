// Filters of HDF5 that no Zarr codec is. Sources: the filters' own READMEs, of HDF5 LZ4 and Bitshuffle.
import { decompress as zstd } from "fzstd";
import { lz4Block } from "./lz4.js";
import { unshuffleBits } from "./shuffle.js";

// Decoded size (uint64) and size of a block (uint32), then blocks behind their stored size (uint32);
// all big-endian. Blocks that are no smaller for it are stored as they are.
export function hdf5Lz4(data) {
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  const out = new Uint8Array(Number(view.getBigUint64(0)));
  const block = view.getUint32(8);
  for (let to = 0, at = 12; to < out.length; to += block) {
    const n_bytes = view.getUint32(at);
    const target = out.subarray(to, Math.min(out.length, to + block));
    const stored = data.subarray(at + 4, at + 4 + n_bytes);
    if (stored.length !== n_bytes || block === 0) throw new Error("an LZ4 chunk is cut off");
    if (n_bytes === target.length) target.set(stored);
    else lz4Block(stored, target);
    at += 4 + n_bytes;
  }
  return out;
}

const [NONE, LZ4] = [0, 2];
const [TARGET_BYTES, LEAST_BLOCK] = [8192, 128];

// `values` are the filter's: versions, size of an element, elements of a block, compression.
export function bitshuffled(data, values) {
  const [size, given, compression = NONE] = values.slice(2);
  const elements = given || Math.max(Math.floor(TARGET_BYTES / size / 8) * 8, LEAST_BLOCK);
  if (compression === NONE) return unshuffledBlocks(data, size, elements * size);
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  const out = new Uint8Array(Number(view.getBigUint64(0)));
  const block = view.getUint32(8);
  const whole = Math.floor(out.length / (8 * size)) * 8 * size; // the rest is stored as it is
  let at = 12;
  for (let to = 0; to < whole; to += block) {
    const n_bytes = view.getUint32(at);
    const stored = data.subarray(at + 4, at + 4 + n_bytes);
    const target = out.subarray(to, Math.min(whole, to + block));
    if (stored.length !== n_bytes || block === 0) throw new Error("a bitshuffled chunk is cut off");
    if (compression === LZ4) lz4Block(stored, target);
    else target.set(zstd(stored));
    at += 4 + n_bytes;
  }
  if (data.length - at !== out.length - whole) throw new Error("a bitshuffled chunk is cut off");
  out.set(data.subarray(at), whole);
  return unshuffledBlocks(out, size, block);
}

function unshuffledBlocks(data, size, block) {
  const whole = Math.floor(data.length / (8 * size)) * 8 * size;
  for (let start = 0; start < whole; start += block) {
    const part = data.subarray(start, Math.min(whole, start + block));
    part.set(unshuffleBits(part, size));
  }
  return data;
}

// Fletcher's checksum of two 16-bit sums, behind the data. Source: HDF5's H5_checksum_fletcher32.
export function withoutFletcher32(data) {
  const body = data.subarray(0, data.length - 4);
  let [low, high] = [0, 0];
  for (let i = 0; i < body.length; i += 2) {
    low = (low + ((body[i] << 8) | (body[i + 1] ?? 0))) % 65535;
    high = (high + low) % 65535;
  }
  const stored = new DataView(data.buffer, data.byteOffset + body.length, 4).getUint32(0, true);
  // Both 0 and 65535 stand for a sum that is a multiple of 65535.
  if ((stored & 65535) % 65535 !== low || (stored >>> 16) % 65535 !== high) throw new Error("a checksum does not fit");
  return body;
}
