// Which values the ends of a colour scale stand for, how many lie beyond them, and how those between are spread.
import { quantileSorted } from "d3-array";
import { scaleLinear, scaleLog, scaleSymlog } from "d3-scale";

const MOST_SORTED = 200_000;

// The finite values in order; of many, every so many.
export function sorted(values) {
  const step = Math.max(1, Math.floor(values.length / MOST_SORTED));
  const found = new Float64Array(Math.ceil(values.length / step));
  let n = 0;
  for (let i = 0; i < values.length; i += step) if (Number.isFinite(values[i])) found[n++] = values[i];
  return found.subarray(0, n).sort();
}

// From 2 to 98 %, or as much `outside` as is asked for, about the centre or from the value that the
// colours ask for; null without values.
export function limitsOf(values, { centre, from, cycle, norm, outside } = {}, units = "") {
  const inOrder = sorted(values);
  if (!inOrder.length) return null;
  if (cycle && /deg/.test(units)) return inOrder[0] < 0 ? [-180, 180] : [0, 360];
  if (norm === "log") {
    const positive = inOrder.subarray(inOrder.findIndex((value) => value > 0));
    return inOrder.at(-1) > 0 ? between(positive) : between(inOrder);
  }
  const [low, high] = between(inOrder, outside);
  if (centre !== undefined) {
    const far = Math.max(centre - low, high - centre);
    return far > 0 ? [centre - far, centre + far] : [centre - 1, centre + 1];
  }
  if (from !== undefined && low >= from) return [from, high > from ? high : Math.max(inOrder.at(-1), from)];
  return [low, high];
}

function between(inOrder, outside = 0.02) {
  const [low, high] = [quantileSorted(inOrder, outside), quantileSorted(inOrder, 1 - outside)];
  return low < high ? [low, high] : [inOrder[0], inOrder.at(-1)];
}

// How many finite values lie below and above, and the least and greatest of all.
export function beyond(values, low, high) {
  const told = { n: 0, below: 0, above: 0, least: Infinity, greatest: -Infinity };
  for (let i = 0; i < values.length; i++) {
    const value = values[i];
    if (!Number.isFinite(value)) continue;
    told.n += 1;
    if (value < low) told.below += 1;
    if (value > high) told.above += 1;
    if (value < told.least) told.least = value;
    if (value > told.greatest) told.greatest = value;
  }
  return told;
}

// How values between the limits are spread over the colours: linear, log, or log on both sides of zero.
export const NORMS = [["linear", "linear"], ["log", "log"], ["symlog", "symmetric log"]];

// `place` is what colours are even in; `scale` (of d3-scale) has the ticks.
export function normOf(kind, low, high) {
  if (kind === "log" && high > 0) {
    const from = low > 0 ? low : high / 1e4;
    return { kind, low: from, high, place: (value) => (value > 0 ? Math.log(value) : -Infinity), scale: scaleLog().domain([from, high]) };
  }
  if (kind === "symlog") {
    const constant = Math.max(Math.abs(low), Math.abs(high)) / 1e3 || 1;
    const place = (value) => Math.sign(value) * Math.log1p(Math.abs(value / constant));
    return { kind, low, high, place, scale: scaleSymlog().constant(constant).domain([low, high]) };
  }
  return { kind: "linear", low, high, place: (value) => value, scale: scaleLinear().domain([low, high]) };
}
