// Where the elements of a plane are on a map; stands in for the frame of a picture as stored.
import { geoCircle, geoDistance, geoPath } from "d3-geo";
import { LAND, outlined } from "../coast.js";
import { multiples } from "../coordinate.js";
import { elementsSeen, NOTHING } from "./mesh.js";
import { turned } from "./earth.js";
import { viewOf } from "./views.js";

const EDGE = 0.02; // of the room, around what is shown
const COASTS_FROM = 4; // degrees: of smaller regions these coasts are too coarse
const GRATICULES = [30, 20, 10, 5, 2, 1, 0.5, 0.2, 0.1];

// Points close enough for a line between them to follow a parallel.
function between(low, high, step) {
  const n = Math.ceil((high - low) / Math.min(2, step));
  return Array.from({ length: n + 1 }, (_, i) => low + (i / n) * (high - low));
}

export class MapFrame {
  // `earth` is a `Place` on it, `centre` longitude and latitude of the middle of a globe.
  constructor({ earth, view, hasCoasts, centre }) {
    Object.assign(this, { earth, hasCoasts, rows: earth.rows, columns: earth.columns, mesh: earth.mesh, extent: earth.extent });
    this.name = view;
    this.isGlobe = view === "globe";
    this.view = viewOf(view, this.extent, { centre, turn: earth.turn });
    this.isFlat = Boolean(this.view.isFlat);
    this.box = this.measured();
    this.glass = { zoom: 1, x: 0.5, y: 0.5 };
  }

  // From where to where the mesh goes under the projection, in units of it.
  measured() {
    this.view.projection.scale(1).translate([0, 0]);
    if (this.view.isRound) return [-1, -1, 1, 1];
    const box = [Infinity, Infinity, -Infinity, -Infinity];
    const { longitudes, latitudes } = this.mesh;
    for (let i = 0; i < longitudes.length; i++) {
      const [x, y] = this.seenAt(longitudes[i], latitudes[i]);
      if (Number.isNaN(x)) continue;
      box[0] = Math.min(box[0], x);
      box[1] = Math.min(box[1], y);
      box[2] = Math.max(box[2], x);
      box[3] = Math.max(box[3], y);
    }
    return box[0] < box[2] && box[1] < box[3] ? box : [-Math.PI, -Math.PI / 2, Math.PI, Math.PI / 2];
  }

  // On the canvas; NaN where it is behind the globe, or nowhere.
  seenAt(longitude, latitude) {
    if (!Number.isFinite(longitude) || !Number.isFinite(latitude)) return [NaN, NaN];
    const { projection, farthest } = this.view;
    const [a, b] = projection.rotate();
    if (farthest < 180 && geoDistance([longitude, latitude], [-a, -b]) > (farthest * Math.PI) / 180) return [NaN, NaN];
    return projection([longitude, latitude]);
  }

  fit(room) {
    const [left, top, right, bottom] = this.box;
    const [wide, high] = [(right - left) * (1 + 2 * EDGE), (bottom - top) * (1 + 2 * EDGE)];
    this.scale = Math.min(room.width / wide, room.height / high);
    [this.width, this.height] = [wide, high].map((each) => Math.max(40, Math.round(each * this.scale)));
    this.start = [(-left + EDGE * (right - left)) * this.scale, (-top + EDGE * (bottom - top)) * this.scale];
  }

  // Sets the projection to what is seen through the glass.
  aim(ratio = 1) {
    const { zoom, x, y } = this.glass;
    const shift = [(x - 0.5 / zoom) * this.width, (y - 0.5 / zoom) * this.height];
    this.view.projection.scale(this.scale * zoom * ratio).translate(this.start.map((at, axis) => (at - shift[axis]) * zoom * ratio));
  }

  look(ratio) {
    const key = [this.width, this.height, ratio, ...Object.values(this.glass)].join();
    if (key === this.key) return;
    this.key = key;
    this.ratio = ratio;
    this.aim(ratio);
    const { longitudes, latitudes } = this.mesh;
    const [xs, ys] = [new Float64Array(longitudes.length), new Float64Array(longitudes.length)];
    for (let i = 0; i < longitudes.length; i++) [xs[i], ys[i]] = this.seenAt(longitudes[i], latitudes[i]);
    const [width, height] = [this.width, this.height].map((each) => Math.round(each * ratio));
    const round = this.isFlat ? 2 * Math.PI * this.view.projection.scale() : 0;
    this.seen = elementsSeen(this.mesh, xs, ys, { width, height, rows: this.rows, columns: this.columns, round });
    this.seenWidth = width;
    this.aim();
  }

  // Turns a globe by pixels.
  turn(x, y) {
    const { projection } = this.view;
    const [a, b] = projection.rotate();
    const degrees = 90 / (this.scale * this.glass.zoom) / (Math.PI / 2);
    projection.rotate([a + x * degrees, Math.max(-90, Math.min(90, b - y * degrees))]);
    this.key = undefined;
  }

  get centre() {
    const [a, b] = this.view.projection.rotate();
    return [turned(-a), -b];
  }

  paint(context, ratio, _, pixels) {
    this.look(ratio);
    const image = new ImageData(this.seenWidth, this.seen.length / this.seenWidth);
    const shown = new Uint32Array(image.data.buffer);
    for (let i = 0; i < shown.length; i++) if (this.seen[i] !== NOTHING) shown[i] = pixels[this.seen[i]];
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.putImageData(image, 0, 0);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.drawLines(context);
  }

  drawLines(context) {
    const { projection, farthest } = this.view;
    const path = geoPath(projection, context);
    const span = Math.max(this.extent.span, this.extent.north - this.extent.south) / this.glass.zoom;
    const step = GRATICULES.find((each) => span / each >= 3) ?? GRATICULES.at(-1);
    context.beginPath();
    path(this.meridians(step));
    Object.assign(context, { strokeStyle: "#80808080", lineWidth: 0.75 });
    context.stroke();
    if (this.hasCoasts && span >= COASTS_FROM) {
      context.beginPath();
      path(LAND);
      outlined(context, 1);
    }
    if (farthest < 180) {
      const [a, b] = projection.rotate();
      context.beginPath();
      path(farthest > 89 ? { type: "Sphere" } : geoCircle().center([-a, -b]).radius(farthest - 0.01)());
      Object.assign(context, { strokeStyle: "#80808080", lineWidth: 1 });
      context.stroke();
    }
  }

  // Meridians and parallels, near what is shown only: fine lines all over the earth would be many.
  meridians(step) {
    const { middle, span, south, north } = this.extent;
    const far = step >= 10 ? 180 : span / 2 + 4 * step;
    const [low, high] = step >= 10 ? [-90, 90] : [Math.max(-90, south - 4 * step), Math.min(90, north + 4 * step)];
    const lines = [];
    for (const longitude of multiples(middle - far, middle + far, step)) lines.push(between(low, high, step).map((latitude) => [longitude, latitude]));
    for (const latitude of multiples(low, high, step)) lines.push(between(middle - far, middle + far, step).map((longitude) => [longitude, latitude]));
    return { type: "MultiLineString", coordinates: lines };
  }

  // Between the canvas and longitude and latitude: axes of flat maps are made by these.
  toCanvas(longitude, latitude) {
    return this.view.projection([longitude, latitude]);
  }

  toPlaces(x, y) {
    const found = this.view.projection.invert([x, y]);
    const middle = this.extent.middle;
    return [middle + turned(found[0] - middle), found[1]];
  }

  elementAt(x, y) {
    if (!this.seen || x < 0 || y < 0 || x >= this.width || y >= this.height) return null;
    const found = this.seen[Math.floor(y * this.ratio) * this.seenWidth + Math.floor(x * this.ratio)] ?? NOTHING;
    return found === NOTHING ? null : [Math.floor(found / this.columns), found % this.columns];
  }

  placeOf(column, row) {
    return this.seenAt(...this.earth.at(column, row));
  }

  outlineOf([row, column]) {
    const corners = [[0, 0], [1, 0], [1, 1], [0, 1]].map(([right, down]) => this.placeOf(column + right, row + down));
    const xs = corners.map(([x]) => x);
    return Math.max(...xs) - Math.min(...xs) < this.width / 2 ? corners : [];
  }

  // Where the cursor begins: what is seen in the middle, else the first element.
  get first() {
    return this.elementAt(this.width / 2, this.height / 2) ?? [0, 0];
  }

  // The neighbour that is most in the direction of an arrow key.
  next([row, column], key) {
    const [x, y] = this.placeOf(column + 0.5, row + 0.5);
    const [right, down] = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowRight: [1, 0], ArrowLeft: [-1, 0] }[key];
    let best = null;
    for (const [r, c] of [[row - 1, column], [row + 1, column], [row, column - 1], [row, column + 1]]) {
      if (r < 0 || c < 0 || r >= this.rows || c >= this.columns) continue;
      const [u, v] = this.placeOf(c + 0.5, r + 0.5);
      const along = ((u - x) * right + (v - y) * down) / Math.hypot(u - x, v - y);
      if (along > (best?.along ?? 0.5)) best = { along, at: [r, c] };
    }
    return best?.at ?? null;
  }
}
