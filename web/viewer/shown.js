// What is shown of an array: which plane, in what colours, how near. The address says all of it.
import { NAMES } from "./colours/scales.js";
import { Composite } from "./composite.js";
import { held, WHOLE } from "./glass.js";
import { VIEWS } from "./map/views.js";

export const MOST_ALONG = 2048; // of larger planes a window is shown

export class Shown {
  // Out of an address; what it leaves out, or what is not there, by default.
  constructor(opened, asked, level) {
    const { dims, shape } = opened;
    const inside = (axis, text) => Math.min(shape[axis] - 1, Math.max(0, Math.floor(Number(text)) || 0));
    const axis = (name) => (dims.includes(name) ? dims.indexOf(name) : undefined);
    const limit = (text) => (text === undefined || Number.isNaN(Number(text)) ? undefined : Number(text));
    this.level = level;
    [this.rows, this.columns] = opened.defaultAxes();
    const [rows, columns] = [axis(asked.rows) ?? this.rows, axis(asked.columns) ?? this.columns];
    if (rows !== columns) Object.assign(this, { rows, columns });
    this.at = dims.map((_, number) => inside(number, asked[`at${number}`]));
    this.windows = Object.fromEntries([this.rows, this.columns].map((along) => [along, inside(along, asked[`from${along}`])]));
    this.composite = Composite.of(opened);
    this.isComposed = asked.compose ? asked.compose !== "no" : Boolean(this.composite?.isSuited);
    this.composite?.take(asked.compose ?? "", shape[this.composite.axis]);
    this.scale = NAMES.includes(asked.colours) ? asked.colours : undefined;
    this.isReversed = asked.reversed === "1";
    this.norm = ["linear", "log", "symlog"].includes(asked.norm) ? asked.norm : undefined;
    this.low = limit(asked.low);
    this.high = limit(asked.high);
    this.coasts = asked.coasts !== "0";
    this.view = VIEWS.some(([name]) => name === asked.view) ? asked.view : undefined;
    const centre = String(asked.centre ?? "").split(",").map(Number);
    this.centre = centre.length === 2 && centre.every(Number.isFinite) ? centre : undefined;
    this.isStretched = asked.stretch === "1";
    this.series = axis(asked.series);
    const [x, y] = String(asked.middle ?? "").split(",").map(Number);
    const glass = { zoom: Number(asked.zoom), x, y };
    this.glass = Object.values(glass).every(Number.isFinite) ? held(glass) : WHOLE;
    const point = String(asked.point ?? "").split(",").map(Number);
    this.point = point.length === dims.length && point.every((at, number) => Number.isInteger(at) && at >= 0 && at < shape[number]) ? point : undefined;
    this.isPlotted = asked.plot === "1" && this.point !== undefined;
    const span = String(asked.span ?? "").split(",").map(Number);
    this.span = span.length === 2 && span.every(Number.isFinite) && span[0] < span[1] ? span : undefined;
    this.isCounted = asked.often === "1";
  }

  // Channels or bands that the picture is composed of; null if it shows one plane.
  get parts() {
    const isPossible = this.composite && ![this.rows, this.columns].includes(this.composite.axis);
    return isPossible && this.isComposed ? this.composite.shown : null;
  }

  hiddenAxes() {
    const shown = [this.rows, this.columns, ...(this.parts ? [this.composite.axis] : [])];
    return this.at.map((_, axis) => axis).filter((axis) => !shown.includes(axis));
  }

  seriesAxis() {
    return this.series ?? this.hiddenAxes()[0] ?? this.columns;
  }

  // From where to where the picture goes along an axis.
  window(axis, length) {
    const start = Math.min(this.windows[axis] ?? 0, Math.max(0, length - MOST_ALONG));
    return [start, Math.min(length, start + MOST_ALONG)];
  }

  // For the address.
  state({ dims }, hasLevels, isCategories) {
    const state = { rows: dims[this.rows], columns: dims[this.columns] };
    if (hasLevels) state.level = this.level;
    for (const axis of this.hiddenAxes()) state[`at${axis}`] = this.at[axis];
    for (const axis of [this.rows, this.columns]) if (this.windows[axis]) state[`from${axis}`] = this.windows[axis];
    if (this.parts) state.compose = String(this.composite);
    else if (this.composite?.isSuited) state.compose = "no";
    if (!this.parts && !isCategories) {
      Object.assign(state, { colours: this.scale, low: this.low, high: this.high });
      if (this.isReversed) state.reversed = 1;
      if (this.norm !== "linear") state.norm = this.norm;
    }
    if (!this.coasts) state.coasts = 0;
    if (this.view) state.view = this.view;
    if (this.centre) state.centre = this.centre.map((each) => each.toFixed(2)).join(",");
    if (this.isStretched) state.stretch = 1;
    if (this.series !== undefined) state.series = dims[this.series];
    const { zoom, x, y } = this.glass;
    if (zoom > 1) Object.assign(state, { zoom: Number(zoom.toFixed(3)), middle: [x, y].map((each) => each.toFixed(5)).join(",") });
    if (this.point) state.point = this.point.join(",");
    if (this.isPlotted) Object.assign(state, { plot: 1, span: this.span?.join(",") });
    if (this.isCounted) state.often = 1;
    return state;
  }
}

// The address keeps what is shown: a link leads to the same picture.
export function readState() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

export function writeState(state) {
  const kept = Object.entries(state).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const ofTheMap = [...new URLSearchParams(location.hash.slice(1))].filter(([key]) => key.startsWith("map-")); // the chunk map's own
  const text = new URLSearchParams([...kept, ...ofTheMap]).toString();
  if (text !== location.hash.slice(1)) history.replaceState(null, "", `#${text}`);
}
