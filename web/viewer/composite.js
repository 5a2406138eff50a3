// Channels of microscopy, or three bands, that make one picture: which, in what colours, and between
// which limits.
import { limitsOf } from "./colours/limits.js";

const OF_BANDS = /^(bands?|channels?|wavelengths?)(_\d+)?$/i;
const OF_SAMPLES = /^(samples?|rgb|s|c)(_\d+)?$/i; // which are bands if there are three or four
const PRIMARY = [["Red", "ff0000"], ["Green", "00ff00"], ["Blue", "0000ff"]];
const IN_TURN = ["ff0000", "00ff00", "0000ff", "ff00ff", "00ffff", "ffff00"];
const AT_FIRST = 6; // channels; more are shown when they are ticked
const OUTSIDE = 0.001; // share of a channel's values that lies beyond each limit

// The dimension of bands, by its name; undefined without one.
export function bandsOf(dims, shape) {
  const isOne = (dim, axis) => (OF_BANDS.test(dim) && shape[axis] > 2) || (OF_SAMPLES.test(dim) && [3, 4].includes(shape[axis]));
  const found = dims.length < 3 ? -1 : dims.findIndex(isOne);
  return found < 0 ? undefined : found;
}

export class Composite {
  // Of an array; null where nothing can be composed.
  static of({ channels, dims, shape, meaning, isByte }) {
    if (meaning.flags || dims.length < 3) return null;
    if (channels?.entries.length > 1) return new Composite(channels.axis, partsOf(channels.entries), { isOfChannels: true, isSuited: true });
    const axis = bandsOf(dims, shape);
    if (axis === undefined) return null;
    const limits = isByte ? { low: 0, high: 255 } : {};
    const parts = PRIMARY.map(([label, colour], at) => ({ label, colour, at, isShown: true, ...limits }));
    return new Composite(axis, parts, { isOfChannels: false, isSuited: isByte && shape[axis] < 5 });
  }

  // `isSuited`: whether it is shown unasked.
  constructor(axis, parts, { isOfChannels, isSuited }) {
    Object.assign(this, { axis, parts, isOfChannels, isSuited });
  }

  get shown() {
    return this.parts.filter(({ isShown }) => isShown);
  }

  // From an address, and for it: places of what is shown, colours and limits, "0:ff0000:12:400,2:…".
  take(text, n) {
    const asked = text.split(",").map(read).filter(({ at }) => Number.isInteger(at) && at >= 0 && at < n);
    if (!asked.length) return;
    for (const [number, part] of this.parts.entries()) {
      const found = this.isOfChannels ? asked.find(({ at }) => at === part.at) : asked[number];
      if (this.isOfChannels) Object.assign(part, { isShown: false }, found);
      else if (found) Object.assign(part, { ...found, colour: part.colour });
    }
  }

  toString() {
    return this.shown.map(({ at, colour, low, high }) => [at, colour, low ?? "", high ?? ""].join(":")).join(",");
  }
}

function partsOf(entries) {
  const isAny = entries.slice(0, AT_FIRST).some(({ active }) => active);
  return entries.map(({ label, colour, window, active }, at) => ({
    label, at, colour: colour ?? IN_TURN[at % IN_TURN.length], isShown: isAny ? active && at < AT_FIRST : at === 0,
    low: window?.[0], high: window?.[1], outside: OUTSIDE,
  }));
}

function read(text) {
  const [at, colour, ...limits] = text.split(":");
  const [low, high] = limits.map((each) => (each && Number.isFinite(Number(each)) ? Number(each) : undefined));
  const found = { at: Number(at || NaN), low, high, isShown: true };
  return /^[0-9a-f]{6}$/.test(colour) ? { ...found, colour } : found;
}

// Gives limits to the parts that have none, each by its own plane; whether there were any.
export function fitParts(parts, planes) {
  const isOpen = ({ low, high }) => low === undefined || high === undefined;
  const wereOpen = parts.some(isOpen);
  for (const [number, part] of parts.entries()) {
    if (!isOpen(part)) continue;
    const [low, high] = limitsOf(planes[number], part) ?? [];
    Object.assign(part, { low: part.low ?? low, high: part.high ?? high });
  }
  return wereOpen;
}
