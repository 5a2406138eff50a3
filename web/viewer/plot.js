// Series of values as a line, with the same numbers as a table for who does not see it.
import { drawn, element } from "./dom.js";
import { rangeOf } from "./colours.js";
import { inWords } from "./meaning.js";

const [WIDTH, HEIGHT, LEFT, BOTTOM] = [720, 240, 70, 28];
const MOST_POINTS = 2_000;
const MOST_ROWS = 200;

export function plotted({ values, words }, label, meaning, title) {
  const [low, high] = rangeOf(values) ?? [0, 1];
  const x = (i) => LEFT + (values.length < 2 ? 0 : (i / (values.length - 1)) * (WIDTH - LEFT - 10));
  const y = (value) => 10 + (1 - (value - low) / (high - low || 1)) * (HEIGHT - BOTTOM - 20);
  const last = values.length - 1;
  const told = `${title}: ${values.length} values from ${meaning.words(low)} to ${meaning.words(high)}`;
  const text = (words, at) => drawn("text", { "font-size": 11, fill: "currentColor", ...at }, words);
  const svg = drawn(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": told, class: "plot" },
    drawn("path", { d: pathOf(values, x, y), fill: "none", stroke: "currentColor", "stroke-width": 1.4 }),
    text(shortly(high), { x: LEFT - 6, y: 16, "text-anchor": "end" }),
    text(shortly(low), { x: LEFT - 6, y: HEIGHT - BOTTOM - 6, "text-anchor": "end" }),
    text(label(0), { x: LEFT, y: HEIGHT - 8 }),
    text(label(last), { x: WIDTH - 10, y: HEIGHT - 8, "text-anchor": "end" }),
  );
  return element("figure", { class: "series" }, svg, element("figcaption", {}, told), rows(values.length, words, label));
}

// What fits beside the plot.
function shortly(value) {
  return inWords(Number(value.toPrecision(6)));
}

// Of many points the lowest and the highest of each few, so that no peak is lost.
function pathOf(values, x, y) {
  const step = Math.max(1, Math.ceil(values.length / MOST_POINTS));
  let path = "";
  let joined = false;
  for (let start = 0; start < values.length; start += step) {
    const part = Array.from({ length: Math.min(step, values.length - start) }, (_, i) => start + i);
    const known = part.filter((i) => Number.isFinite(values[i]));
    if (!known.length) {
      joined = false;
      continue;
    }
    const lowest = known.reduce((a, b) => (values[b] < values[a] ? b : a));
    const highest = known.reduce((a, b) => (values[b] > values[a] ? b : a));
    for (const i of new Set([Math.min(lowest, highest), Math.max(lowest, highest)])) {
      path += `${joined ? "L" : "M"}${x(i).toFixed(1)} ${y(values[i]).toFixed(1)}`;
      joined = true;
    }
  }
  return path;
}

function rows(n, words, label) {
  const shown = Array.from({ length: Math.min(n, MOST_ROWS) }, (_, i) =>
    element("tr", {}, element("th", { scope: "row" }, label(i)), element("td", {}, words(i))),
  );
  const more = n > MOST_ROWS ? `The first ${MOST_ROWS} of ${n} values` : "Values";
  return element("details", {}, element("summary", {}, more), element("table", {}, element("tbody", {}, ...shown)));
}
