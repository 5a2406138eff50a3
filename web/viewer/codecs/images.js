// JPEG images as chunks, by the browser's own decoder. Sources: ITU-T T.81, B.1 (markers); libjpeg.txt,
// "Special color spaces" (Adobe's marker); TIFF Technical Note 2 (tables in a stream of their own).

const [START, END, FIRST_SCAN, ADOBE, JFIF] = [0xd8, 0xd9, 0xda, 0xee, 0xe0];
const RGB = 2;

// An image, out of a stream of tables perhaps, and the image's own.
export async function jpeg(data, { width, samples, rows: storedRows = 0, colorspace }, rows) {
  const bytes = joined(data, samples === 3 ? colorspace : undefined);
  const image = await createImageBitmap(new Blob([bytes], { type: "image/jpeg" }), {
    colorSpaceConversion: "none",
    imageOrientation: "none",
    premultiplyAlpha: "none",
  });
  if (image.width !== width || ![rows, storedRows].includes(image.height)) {
    throw new Error(`a JPEG of ${image.width} by ${image.height} pixels, where ${width} by ${rows} belong`);
  }
  const context = new OffscreenCanvas(width, image.height).getContext("2d", { willReadFrequently: true });
  context.drawImage(image, 0, 0);
  const { data: pixels } = context.getImageData(0, 0, width, rows);
  const out = new Uint8Array(width * rows * samples);
  for (let pixel = 0, to = 0; to < out.length; pixel += 4) {
    for (let sample = 0; sample < samples; sample++) out[to++] = pixels[pixel + sample];
  }
  return out;
}

// Browsers make up what is cut off, and guess colours where nothing says them: Adobe's marker does.
function joined(data, colorspace) {
  const tables = endOfTables(data);
  const head = data.subarray(2, Math.max(2, tables - 2));
  const image = data.subarray(tables + 2);
  if (data[tables] !== 0xff || data[tables + 1] !== START || !hasEnd(image)) throw new Error("a JPEG is cut off");
  const says = markers(image);
  const marker = [0xff, ADOBE, 0, 14, 65, 100, 111, 98, 101, 0, 100, 0, 0, 0, 0, colorspace === RGB ? 0 : 1];
  const isTold = colorspace === undefined || says.has(ADOBE) || says.has(JFIF);
  return new Uint8Array([0xff, START, ...(isTold ? [] : marker), ...head, ...image]);
}

function hasEnd(image) {
  for (let at = image.length - 2; at >= image.length - 18; at--) {
    if (image[at] === 0xff && image[at + 1] === END) return true;
  }
  return false;
}

// Where the image begins behind a stream of tables, which has no scan; 0 where there are none.
function endOfTables(data) {
  for (let at = 2; at + 4 <= data.length && data[at] === 0xff && data[at + 1] !== FIRST_SCAN; ) {
    if (data[at + 1] === END) return at + 2;
    at += 2 + ((data[at + 2] << 8) | data[at + 3]);
  }
  return 0;
}

function markers(image) {
  const found = new Set();
  for (let at = 0; at + 4 <= image.length && image[at] === 0xff && image[at + 1] !== FIRST_SCAN; ) {
    found.add(image[at + 1]);
    at += 2 + ((image[at + 2] << 8) | image[at + 3]);
  }
  return found;
}

// Differences along the width, which wrap around. Source: TIFF 6.0, section 14.
export function summed({ data, shape, stride }, axis) {
  const inner = shape.slice(axis + 1).reduce((a, b) => a * b, 1);
  const row = shape[axis] * inner;
  for (let start = 0; start < data.length; start += row) {
    for (let i = start + inner; i < start + row; i++) data[i] += data[i - inner];
  }
  return { data, shape, stride };
}
