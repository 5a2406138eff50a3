// One level of detail of an array, with the coordinates of its dimensions.
import { coordinateOf, ShownArray } from "./array.js";
import { Numbered } from "./coordinate.js";
import { bandsOf } from "./composite.js";

const MOST_LABELS = 1_000_000;

export class Opened {
  static async level(store, { path, dims, coordinates: paths, earth, channels, attributes, steps }) {
    const [array, ...coordinates] = await Promise.all([
      ShownArray.open(store, path, steps ?? [], attributes),
      ...paths.map((each, axis) => (each ? coordinateOf(store, each, MOST_LABELS, steps?.[axis]) : null)),
    ]);
    steps?.forEach(([first, step], axis) => {
      if (step > 1) coordinates[axis] ??= new Numbered(dims[axis], first, step, array.shape[axis]);
    });
    return new Opened(path, dims, array, coordinates, { earth, channels });
  }

  constructor(path, dims, array, coordinates, { earth, channels }) {
    Object.assign(this, { path, dims, array, coordinates, earth, channels, shape: array.shape, meaning: array.meaning, isByte: array.isByte });
    this.problems = [];
    // HDF5 may name no dimensions: what labels them does.
    this.names = dims.map((dim, axis) => (/^phony_dim_/.test(dim) ? coordinates[axis]?.title ?? dim : dim));
    // Done when the values of coordinates are there, which are read beside the array's own, or are
    // known not to come: labels that cannot be read are no reason to show nothing.
    this.labels = Promise.all(coordinates.map((each, axis) => each?.reading.catch((error) => this.number(axis, error))));
  }

  number(axis, error) {
    this.coordinates[axis] = null;
    this.problems.push(`Labels of ${this.dims[axis]} could not be read, so that it is numbered: ${error.message}`);
  }

  label(axis, index) {
    if (axis === this.channels?.axis) return this.channels.entries[index].label;
    return this.coordinates[axis]?.label(index) ?? String(index);
  }

  // What it is called, and in which units.
  get title() {
    const { attributes } = this.array;
    const name = [attributes.long_name, attributes.standard_name, attributes.description].find((each) => typeof each === "string" && each.trim());
    return (name ? name.trim().replaceAll("_", " ") : "") || this.path.split("/").at(-1);
  }

  get heading() {
    return this.meaning.units ? `${this.title} (${this.meaning.units})` : this.title;
  }

  // Up and across are what coordinates say; else the last dimensions, as in pictures.
  defaultAxes() {
    const up = this.coordinates.findIndex((each) => each?.isVertical);
    const across = this.coordinates.findIndex((each) => each?.isHorizontal);
    if (up >= 0 && across >= 0) return [up, across];
    if (this.earth) return this.earth.dims.map((dim) => this.dims.indexOf(dim));
    return axesOfImage(this);
  }
}

// The last two dimensions that are not bands or channels.
export function axesOfImage({ dims, shape, channels }) {
  const apart = channels?.axis ?? bandsOf(dims, shape);
  const others = dims.map((_, axis) => axis).filter((axis) => axis !== apart);
  return others.length < 2 ? [0, 1] : others.slice(-2);
}
