// What colours mean: a bar with ticks, or a list of categories.
import { axisBottom } from "d3-axis";
import { select } from "d3-selection";
import { drawn, element } from "./controls.js";
import { categoryColour } from "./colours/paint.js";
import { roughly } from "./numbers.js";

const [HEIGHT, POINT, SIDE, LETTER, APART, MOST] = [14, 9, 22, 8, 52, 560];

// A bar of the colours, so many pixels wide; ends are pointed where values lie beyond them.
export function bar(room, colours, norm, units, { below, above }) {
  const wide = Math.max(120, Math.min(room - 2 * SIDE - LETTER * units.length, MOST));
  const row = element("canvas", { width: colours.length, height: 1 });
  const image = new ImageData(colours.length, 1);
  colours.forEach((colour, i) => image.data.set([...colour, 255], 4 * i));
  row.getContext("2d").putImageData(image, 0, 0);
  row.style.width = `${wide}px`;
  const scale = norm.scale.copy().range([0, wide]);
  const svg = drawn("svg", { viewBox: `${-SIDE} 0 ${wide + 2 * SIDE} 38`, width: wide + 2 * SIDE, height: 38 });
  const end = (points, colour) => drawn("polygon", { points, fill: `rgb(${colour})` });
  if (below) svg.append(end(`0,0 ${-POINT},${HEIGHT / 2} 0,${HEIGHT}`, colours[0]));
  if (above) svg.append(end(`${wide},0 ${wide + POINT},${HEIGHT / 2} ${wide},${HEIGHT}`, colours.at(-1)));
  const axis = drawn("g", { transform: `translate(0, ${HEIGHT})` });
  svg.append(axis);
  const values = tickValues(scale, norm, Math.max(2, Math.floor(wide / 70)));
  select(axis).call(axisBottom(scale).tickValues([...values.keys()]).tickFormat((value) => values.get(value)).tickSizeOuter(0));
  return element("div", { class: "colours", "aria-hidden": "true" }, row, svg, element("span", {}, units));
}

// Round values with their words; where they would touch, the later ones are left out.
function tickValues(scale, { kind, low, high }, n) {
  const size = Math.max(Math.abs(low), Math.abs(high));
  const format = kind === "linear" && size >= 1e-3 && size < 1e7 ? scale.tickFormat(n) : roughly;
  const found = low === high ? [low] : kind === "symlog" ? aroundZero(low, high) : scale.ticks(n);
  const inOrder = kind === "log" ? found.toSorted((a, b) => roundness(a) - roundness(b)) : found;
  const kept = [];
  for (const value of inOrder) if (kept.every((other) => Math.abs(scale(other) - scale(value)) >= APART)) kept.push(value);
  return new Map(kept.map((value) => [value, format(value)]));
}

const roundness = (value) => Number(!value.toExponential().startsWith("1e"));

// Zero, and powers of ten on both of its sides.
function aroundZero(low, high) {
  const top = Math.floor(Math.log10(Math.max(Math.abs(low), Math.abs(high), Number.MIN_VALUE)));
  const powers = [0, 1, 2].map((less) => 10 ** (top - less));
  return [0, ...powers.flatMap((power) => [power, -power])].filter((value) => value >= low && value <= high);
}

export function categories(flags) {
  return namedColours([...flags].map(([value, words], i) => [categoryColour(i), `${value}: ${words.replaceAll("_", " ")}`]));
}

export function namedColours(named) {
  const items = named.map(([colour, words]) => {
    const patch = drawn("svg", { viewBox: "0 0 1 1", "aria-hidden": "true" }, drawn("rect", { width: 1, height: 1, fill: `rgb(${colour})` }));
    return element("li", {}, patch, words);
  });
  return element("ul", { class: "legend" }, ...items);
}
