// Where elements are on earth: longitude and latitude of places among columns and rows.
import proj4 from "proj4";
import { valueAt } from "../places.js";

const RADIANS = Math.PI / 180;
const EARTH = 6371e3; // metres

// By coordinates of one dimension each; `toEarth` turns what they count into longitude and latitude.
export function alongAxes(xs, ys, toEarth = (x, y) => [x, Math.min(90, Math.max(-90, y))]) {
  return (column, row) => toEarth(valueAt(xs, column), valueAt(ys, row));
}

// Of a map projection, as a text of PROJ; `units` are metres of a unit of y and of x.
export function projected(text, [unitsOfY, unitsOfX]) {
  const projection = proj4(text);
  return (x, y) => {
    try {
      return projection.inverse([x * unitsOfX, y * unitsOfY]);
    } catch {
      return [NaN, NaN]; // not on earth
    }
  };
}

// Of a grid whose pole is elsewhere (CF conventions, appendix F, "Rotated pole").
export function rotated([latitude, longitude, turn]) {
  const [sine, cosine] = [Math.sin(latitude * RADIANS), Math.cos(latitude * RADIANS)];
  return (x, y) => {
    const [a, b] = [(x - turn) * RADIANS, y * RADIANS];
    const up = sine * Math.sin(b) + cosine * Math.cos(b) * Math.cos(a);
    const east = Math.atan2(-Math.cos(b) * Math.sin(a), Math.sin(b) * cosine - Math.cos(b) * Math.cos(a) * sine);
    return [turned(longitude + east / RADIANS), Math.asin(Math.max(-1, Math.min(1, up))) / RADIANS];
  };
}

// Of a sweep of a weather radar, by its rays from the north on and their bins; along the ground of a round earth.
export function swept([latitude, longitude, elevation, first, size], n_rays, [row0, column0]) {
  const [sine, cosine] = [Math.sin(latitude * RADIANS), Math.cos(latitude * RADIANS)];
  return (column, row) => {
    const away = ((first + (column + column0) * size) * Math.cos(elevation * RADIANS)) / EARTH;
    const azimuth = (2 * Math.PI * (row + row0)) / n_rays;
    const up = sine * Math.cos(away) + cosine * Math.sin(away) * Math.cos(azimuth);
    const east = Math.atan2(Math.sin(azimuth) * Math.sin(away) * cosine, Math.cos(away) - sine * up);
    return [turned(longitude + east / RADIANS), Math.asin(up) / RADIANS];
  };
}

// By latitudes and longitudes of every element. Between them, and half an element beyond, in space:
// there neither the date line nor the poles are special.
export function everywhere(longitudes, latitudes, rows, columns) {
  const points = new Float64Array(3 * rows * columns);
  for (let i = 0; i < rows * columns; i++) {
    const [a, b] = [longitudes[i] * RADIANS, latitudes[i] * RADIANS];
    const isThere = Math.abs(latitudes[i]) <= 90.001 && Math.abs(longitudes[i]) <= 720;
    points.set(isThere ? [Math.cos(b) * Math.cos(a), Math.cos(b) * Math.sin(a), Math.sin(b)] : [NaN, NaN, NaN], 3 * i);
  }
  return (column, row) => {
    const [left, right] = neighbours(column, columns);
    const [above, below] = neighbours(row, rows);
    const [u, v] = [column - 0.5 - left, row - 0.5 - above];
    const found = [0, 0, 0];
    for (const [r, c, weight] of [[above, left, (1 - u) * (1 - v)], [above, right, u * (1 - v)], [below, left, (1 - u) * v], [below, right, u * v]]) {
      if (weight === 0) continue;
      const at = 3 * (r * columns + c);
      for (let axis = 0; axis < 3; axis++) found[axis] += weight * points[at + axis];
    }
    const [x, y, z] = found;
    return [Math.atan2(y, x) / RADIANS, Math.atan2(z, Math.hypot(x, y)) / RADIANS];
  };
}

function neighbours(place, n) {
  const first = Math.min(Math.max(0, Math.floor(place - 0.5)), Math.max(0, n - 2));
  return [first, Math.min(first + 1, n - 1)];
}

export function turned(longitude) {
  return ((((longitude + 180) % 360) + 360) % 360) - 180;
}

// In words, to a hundredth of a degree or as finely as is needed for neighbours to differ.
export function onEarth(longitude, latitude) {
  if (!Number.isFinite(longitude) || !Number.isFinite(latitude)) return "nowhere on earth";
  const side = (value, names) => `${Number(Math.abs(value).toFixed(3))}° ${names[Number(value < 0)]}`;
  return `${side(latitude, "NS")}, ${side(turned(longitude), "EW")}`;
}
