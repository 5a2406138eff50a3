// From values to colours, and to words about them: what suits the array, as far as nobody chose.
import { bar, categories, namedColours } from "./colourbar.js";
import { suited } from "./colours/choosing.js";
import { beyond, limitsOf, normOf } from "./colours/limits.js";
import { categorised, mixed, rgbOf, scaled } from "./colours/paint.js";
import { coloursOf } from "./colours/scales.js";
import { element } from "./controls.js";
import { roughly } from "./numbers.js";

// Of `scale`, `norm`, `low` and `high` those that are not chosen yet, for the values that there are;
// null if all are, or nothing is known. They stay while sliders move, and mean the same then.
export function fitted({ scale, norm, low, high }, { array, path, meaning }, values) {
  const { n, least, greatest } = beyond(values, 0, 0);
  if (!n || (scale && norm && low !== undefined && high !== undefined)) return null;
  const { attributes, isCount } = array;
  const fit = suited({ attributes, name: path.split("/").at(-1), isCount, range: [least, greatest] });
  const limits = limitsOf(values, fit, meaning.units);
  const isLog = fit.norm === "log" && limits[0] > 0;
  return { scale: scale ?? fit.scale, norm: norm ?? (isLog ? "log" : "linear"), low: low ?? limits[0], high: high ?? limits[1] };
}

// Pixels of one plane, or of one for each of the `parts` that are composed, and the legend for them.
export function coloured(shown, { meaning }, planes, parts, room) {
  const [plane] = planes;
  if (parts) return { pixels: mixed(planes, parts), legend: shown.composite.isOfChannels ? [legendOfParts(parts, meaning)] : [] };
  if (meaning.flags) return { pixels: categorised(plane, meaning.flags), legend: [categories(meaning.flags)] };
  const colours = coloursOf(shown.scale ?? "viridis", shown.isReversed);
  const norm = normOf(shown.norm, shown.low ?? 0, shown.high ?? 1);
  const outside = beyond(plane, norm.low, norm.high);
  const words = element("p", { class: "outside" }, ...legendInWords(norm, outside, meaning));
  const legend = outside.n ? [bar(room, colours, norm, meaning.units, outside), words] : [element("p", {}, "No values here.")];
  return { pixels: scaled(plane, colours, norm), legend };
}

function legendOfParts(parts, meaning) {
  const told = ({ label, low, high }) => (low === undefined ? `${label}: no values here` : `${label}: ${roughly(low)} to ${meaning.withUnits(roughly(high))}`);
  return namedColours(parts.map((part) => [rgbOf(part.colour), told(part)]));
}

function legendInWords({ low, high }, { n, below, above, least, greatest }, meaning) {
  const share = (count) => `${Math.max(0.1, Math.round((1000 * count) / n) / 10)} %`;
  const told = [
    below && `${share(below)} of the values are below ${roughly(low)}, down to ${roughly(least)}`,
    above && `${share(above)} are above ${roughly(high)}, up to ${roughly(greatest)}`,
  ].filter(Boolean);
  const ends = `Colours from ${meaning.words(low)} to ${meaning.words(high)}. `;
  return [element("span", { class: "unseen" }, ends), told.length ? `${told.join("; ")}${meaning.units && ` ${meaning.units}`}.` : ""];
}
