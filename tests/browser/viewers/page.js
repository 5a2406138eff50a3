// What pages of others do with an address, by OpenLayers and ome-zarr.js as they are published.
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
