// Codecs that zarrita.js has in WebAssembly, which strict pages may not run, or has not.
import { decompress as zstd } from "fzstd";
import { registry } from "zarrita";
import { blosc } from "./blosc.js";
import { bitshuffled, hdf5Lz4, withoutFletcher32 } from "./hdf5.js";
import { jpeg, summed } from "./images.js";
import { lz4Block } from "./lz4.js";
import { unshuffle } from "./shuffle.js";

function add(names, kind, decode) {
  for (const name of names) {
    registry.set(name, () => ({
      fromConfig: (config, meta) => ({ kind, decode: (chunk) => decode(chunk, config, meta) }),
    }));
  }
}

const sizeOf = (shape) => shape.reduce((a, b) => a * b, 1);

add(["zstd", "numcodecs.zstd"], "bytes_to_bytes", (data) => zstd(data));
add(["blosc", "numcodecs.blosc"], "bytes_to_bytes", blosc);
add(["numcodecs.shuffle"], "bytes_to_bytes", (data, { elementsize }) => unshuffle(data, elementsize));
add(["numcodecs.fletcher32"], "bytes_to_bytes", withoutFletcher32);
add(["gridref.hdf5_lz4"], "bytes_to_bytes", hdf5Lz4);
add(["gridref.hdf5_bitshuffle"], "bytes_to_bytes", (data, { cd_values }) => bitshuffled(data, cd_values));
add(["numcodecs.lz4"], "bytes_to_bytes", (data) => {
  const size = new DataView(data.buffer, data.byteOffset, 4).getUint32(0, true);
  return lz4Block(data.subarray(4), new Uint8Array(size));
});
add(["gridref.tiff_jpeg"], "bytes_to_bytes", (data, config, { shape }) =>
  jpeg(data, config, sizeOf(shape) / config.width / config.samples),
);
add(["gridref.hdf5_jpeg"], "bytes_to_bytes", (data, _, { shape }) => {
  const [rows, width, samples = 1] = shape.filter((length) => length !== 1);
  return jpeg(data, { width, samples }, rows);
});
add(["gridref.tiff_predictor"], "array_to_array", (chunk, { axis }) =>
  summed(chunk, axis < 0 ? axis + chunk.shape.length : axis),
);
