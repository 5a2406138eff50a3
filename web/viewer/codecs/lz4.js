// LZ4 blocks. Source: the LZ4 block format description (lz4/doc/lz4_Block_format.md).

export function lz4Block(data, out) {
  let [at, to] = [0, 0];
  const more = (length) => {
    let byte = 255;
    while (byte === 255) length += byte = next();
    return length;
  };
  const next = () => {
    if (at >= data.length) throw new Error("an LZ4 block is cut off");
    return data[at++];
  };
  while (at < data.length) {
    const token = next();
    let length = token >> 4;
    if (length === 15) length = more(length);
    if (at + length > data.length || to + length > out.length) throw new Error("an LZ4 block is damaged");
    out.set(data.subarray(at, at + length), to);
    [at, to] = [at + length, to + length];
    if (at === data.length) break; // the last sequence is literals alone
    const distance = next() | (next() << 8);
    length = (token & 15) === 15 ? more(15) + 4 : (token & 15) + 4;
    copyBack(out, to, distance, length);
    to += length;
  }
  if (to !== out.length) throw new Error(`an LZ4 block has ${to} bytes where ${out.length} belong`);
  return out;
}

// Repeats what was written `distance` bytes before; the two places may overlap.
export function copyBack(out, to, distance, length) {
  if (distance === 0 || distance > to || to + length > out.length) throw new Error("a repeat lies outside of its block");
  if (distance >= length) out.copyWithin(to, to - distance, to - distance + length);
  else for (let i = to; i < to + length; i++) out[i] = out[i - distance];
}
