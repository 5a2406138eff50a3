// What pages of others do with an address, by viewers as they are published.
import { codecRegistry, ZarrLayer } from "@carbonplan/zarr-layer";
import maplibre from "maplibre-gl";
import GeoZarr from "ol/source/GeoZarr.js";
import { render } from "ome-zarr.js";

function until(target, isDone) {
  return new Promise((go) => {
    const look = () => isDone() && go();
    target.addEventListener("change", look);
    look();
  });
}

// The first tile of a variable: two numbers a pixel, the value and whether there is one.
window.tileOf = async (url, variable, dimensions) => {
  const source = new GeoZarr({ url, variable, dimensions, projection: "EPSG:4326" });
  await until(source, () => source.getState() !== "loading");
  if (source.getError?.()) throw source.getError();
  const tile = source.getTile(0, 0, 0, 1, source.getProjection());
  const done = until(tile, () => tile.getState() >= 2);
  tile.load();
  await done;
  return { data: Array.from(tile.getData()), width: tile.getSize()[0] };
};

// The address of a PNG image.
window.imageOf = (url) => render(url);

// A store of kerchunk references, which the layer takes in place of an address.
class References {
  static async open(url) {
    const { refs, templates } = await (await fetch(url)).json();
    return Object.assign(new References(), { refs, templates, url });
  }

  async get(key) {
    const found = this.refs[key.slice(1)];
    if (found === undefined) return undefined;
    if (!Array.isArray(found)) return bytesOf(typeof found === "string" ? found : JSON.stringify(found));
    const [address, offset, length] = found;
    const headers = length ? { range: `bytes=${offset}-${offset + length - 1}` } : {};
    return new Uint8Array(await (await fetch(address, { headers })).arrayBuffer());
  }
}

function bytesOf(text) {
  if (!text.startsWith("base64:")) return new TextEncoder().encode(text);
  return Uint8Array.from(atob(text.slice(7)), (character) => character.charCodeAt(0));
}

// NetCDF's filter, which zarrita.js does not have.
class Shuffle {
  kind = "bytes_to_bytes";
  static fromConfig(config) {
    return Object.assign(new Shuffle(), config);
  }
  decode(bytes) {
    const n = bytes.length / this.elementsize;
    return bytes.map((_, i) => bytes[(i % this.elementsize) * n + Math.floor(i / this.elementsize)]);
  }
}
for (const name of ["shuffle", "numcodecs.shuffle"]) codecRegistry.set(name, async () => Shuffle);

const GREYS = Array.from({ length: 256 }, (_, level) => `#${level.toString(16).padStart(2, "0").repeat(3)}`);

// What a map shows at some places: the numbers that its layer tells, and the grey on the screen.
window.onMap = async (url, variable, selector, clim, places) => {
  const container = document.body.appendChild(document.createElement("div"));
  container.style.cssText = "width: 512px; height: 512px";
  const map = new maplibre.Map({
    container, center: [0, 0], zoom: 0, attributionControl: false,
    style: { version: 8, sources: {}, layers: [] },
    canvasContextAttributes: { preserveDrawingBuffer: true },
  });
  await map.once("load");
  const settled = new EventTarget();
  let loading = true;
  const source = url.endsWith(".json") ? { store: await References.open(url) } : { source: url };
  const layer = new ZarrLayer({
    ...source, id: "shown", variable, selector, clim, colormap: GREYS,
    onLoadingStateChange: (state) => {
      loading = state.loading;
      settled.dispatchEvent(new Event("change"));
    },
  });
  map.addLayer(layer);
  await until(settled, () => !loading);
  const told = await Promise.all(places.map((at) => layer.queryData({ type: "Point", coordinates: at })));
  map.triggerRepaint();
  await map.once("idle");
  const canvas = map.getCanvas();
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d");
  copy.drawImage(canvas, 0, 0);
  const greys = places.map((at) => {
    const { x, y } = map.project(at);
    return Array.from(copy.getImageData(Math.round(x * devicePixelRatio), Math.round(y * devicePixelRatio), 1, 1).data);
  });
  map.remove();
  return { values: told.map((each) => each[variable][0]), greys };
};
