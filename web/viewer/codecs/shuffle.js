// Bytes, or bits, of elements that were sorted by their place in the element.

// Sources: HDF5's shuffle filter; C-Blosc's shuffle: bytes behind the last whole element stay.
export function unshuffle(data, size) {
  const n = Math.floor(data.length / size);
  const out = new Uint8Array(data.length);
  for (let byte = 0; byte < size; byte++) {
    for (let i = 0; i < n; i++) out[i * size + byte] = data[byte * n + i];
  }
  out.set(data.subarray(n * size), n * size);
  return out;
}

// Bit b of byte B of element i stands in row 8 B + b of the shuffled bits, at place i. Elements
// behind the last whole eight stay. Source: Masui et al., "A compression scheme for radio data".
export function unshuffleBits(data, size) {
  const n = Math.floor(data.length / size / 8) * 8;
  const out = new Uint8Array(data.length);
  const row = n / 8;
  for (let byte = 0; byte < size; byte++) {
    for (let bit = 0; bit < 8; bit++) {
      const start = (8 * byte + bit) * row;
      for (let i = 0; i < n; i++) out[i * size + byte] |= ((data[start + (i >> 3)] >> (i & 7)) & 1) << bit;
    }
  }
  out.set(data.subarray(n * size), n * size);
  return out;
}
