// Reads arrays over HTTP with zarrita.js: one JSON request a line on stdin, one JSON answer a line on stdout.
import { createInterface } from "node:readline";
import * as zarr from "zarrita";

function encode(data) {
  if (ArrayBuffer.isView(data)) {
    return { base64: Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString("base64") };
  }
  return { values: Array.from(data) };
}

async function read({ url, selection }) {
  const array = await zarr.open.v3(new zarr.FetchStore(url), { kind: "array" });
  const wanted = selection && selection.map(([start, stop]) => zarr.slice(start, stop));
  const chunk = await zarr.get(array, wanted);
  return { shape: chunk.shape, dtype: array.dtype, ...encode(chunk.data) };
}

for await (const line of createInterface({ input: process.stdin })) {
  let answer;
  try {
    answer = await read(JSON.parse(line));
  } catch (error) {
    answer = { error: `${error.name}: ${error.message}` };
  }
  console.log(JSON.stringify(answer));
}
