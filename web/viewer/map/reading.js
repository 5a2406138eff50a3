// What there is of places on earth, by what the page says of an array: its coordinates, or its projection.
import { ShownArray } from "../array.js";
import { alongAxes, everywhere, projected, rotated, swept } from "./earth.js";
import { extentOf, Mesh } from "./mesh.js";

const UNEVEN = 0.02; // of a step: coordinates that are less even are drawn where they are

// A plane's place on earth: `at` gives longitude and latitude of places of columns and rows, and
// `isPlain` is whether a picture as stored shows them as well.
class Place {
  constructor(at, { rows, columns }, isPlain = false) {
    Object.assign(this, { at, rows, columns, isPlain });
    this.mesh = new Mesh(at, rows, columns);
    this.extent = extentOf(this.mesh);
  }

  // Whether the first row is the southernmost: half way along the columns.
  get isSouthFirst() {
    const [first, last] = [0.5, this.rows - 0.5].map((row) => this.at(this.columns / 2, row)[1]);
    return first < last;
  }
}

// Null where nothing is known; `windows` are what is shown along each axis.
export async function placeOnEarth(store, opened, { rows, columns }, windows) {
  const { earth, dims, coordinates } = opened;
  const part = (axis) => coordinates[axis]?.values?.subarray(...windows[axis]);
  const [ys, xs] = [part(rows), part(columns)];
  const areOrdered = Boolean(coordinates[rows]?.isOrdered && coordinates[columns]?.isOrdered && ys.length > 1 && xs.length > 1);
  const lengths = { rows: windows[rows][1] - windows[rows][0], columns: windows[columns][1] - windows[columns][0] };
  if (coordinates[rows]?.isLatitude && coordinates[columns]?.isLongitude) {
    return areOrdered ? new Place(alongAxes(xs, ys), lengths, isEven(ys) && isEven(xs)) : null;
  }
  const isTheirs = earth && [dims[rows], dims[columns]].every((dim) => earth.dims.includes(dim));
  if (!isTheirs || Math.min(lengths.rows, lengths.columns) < 2) return null;
  if (earth.sweep) return new Place(swept(earth.sweep, opened.shape[rows], [windows[rows][0], windows[columns][0]]), lengths);
  if (earth.latitude) return new Place(await read(store, opened, rows, columns, windows), lengths);
  if (!areOrdered || dims[rows] !== earth.dims[0]) return null;
  if (earth.pole) return new Place(alongAxes(xs, ys, rotated(earth.pole)), lengths);
  const found = new Place(alongAxes(xs, ys, projected(earth.projection, earth.units)), lengths);
  const turn = /\+lon_0=(-?[\d.]+)/.exec(earth.projection);
  return turn ? Object.assign(found, { turn: Number(turn[1]) }) : found;
}

async function read(store, { earth, dims, array: { steps } }, rows, columns, windows) {
  const theirs = steps && earth.dims.map((dim) => steps[dims.indexOf(dim)] ?? [0, 1]);
  const planes = await Promise.all(
    [earth.longitude, earth.latitude].map(async (path) => {
      const array = await ShownArray.open(store, path, theirs);
      const first = array.shape.length - 2;
      const axes = [dims[rows], dims[columns]].map((dim) => first + earth.dims.indexOf(dim));
      return array.plane(...axes, array.shape.map(() => 0), { [axes[0]]: windows[rows], [axes[1]]: windows[columns] });
    }),
  );
  const [{ values: longitudes, height, width }, { values: latitudes }] = planes;
  return everywhere(longitudes, latitudes, height, width);
}

function isEven(values) {
  const step = (values.at(-1) - values[0]) / (values.length - 1);
  return values.every((value, i) => Math.abs(value - values[0] - i * step) <= UNEVEN * Math.abs(step) * Math.max(1, values.length / 100));
}
