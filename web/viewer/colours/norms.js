// How values between the limits are spread over the colours: linear, log, or log on both sides of zero.
import { scaleLinear, scaleLog, scaleSymlog } from "d3-scale";

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
