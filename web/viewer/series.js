// Series of values as a line, and how often values are: drawn by uPlot, the numbers as a table as well.
import { ticks as ticksBetween } from "d3-array";
import uPlot from "uplot";
import { element } from "./controls.js";
import { sorted } from "./colours/limits.js";
import { roughly } from "./numbers.js";
import { download } from "./saving.js";

const MOST_ROWS = 200;
const BINS = 64;
const SIDE = 64;
const GAPS = 50; // times as long as what is between them
const APART = 110; // of words below the line

function styled() {
  const style = getComputedStyle(document.documentElement);
  const [ink, line, link] = ["--ink", "--line", "--link"].map((name) => style.getPropertyValue(name).trim());
  return { ink, line, link };
}

// A plot that follows its place's width and the colours of the page, until it is taken away. `span` is what
// is looked at closely, undefined for all of it; `looked` is called when it changes.
function drawnBy(place, options, data, span = undefined, looked = () => {}) {
  let plot = null;
  const setScale = (drawn, key) => {
    if (key !== "x" || drawn !== plot) return;
    const { min, max } = drawn.scales.x;
    const isAll = min <= data[0][0] && max >= data[0].at(-1);
    span = isAll ? undefined : [min, max];
    looked(span);
  };
  const draw = () => {
    const { ink, line, link } = styled();
    plot?.destroy();
    const axis = (each) => ({ stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 }, font: "12px system-ui, sans-serif", ...each });
    plot = new uPlot(
      {
        width: Math.max(240, place.clientWidth), height: options.height ?? 260, legend: { show: false }, cursor: { y: false, drag: { x: true, y: false } },
        scales: { x: { time: false } }, ...options, hooks: { ...options.hooks, setScale: [setScale] },
        axes: [axis(options.axes[0]), axis({ size: SIDE, ...options.axes[1] })],
        series: [{}, { stroke: link, width: 1.5, ...options.line, ...(options.line?.fill ? { fill: `${link}66` } : {}) }],
      },
      data,
      place,
    );
    if (span) plot.setScale("x", { min: span[0], max: span[1] });
  };
  const room = new ResizeObserver(() => (plot ? plot.setSize({ width: Math.max(240, place.clientWidth), height: options.height ?? 260 }) : draw()));
  room.observe(place);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => place.isConnected && plot && draw());
  return place;
}

// Whether most of a plot would be gaps, as between passes of a satellite.
function isMostlyGaps(values) {
  const steps = values.subarray(1).map((value, i) => Math.abs(value - values[i])).sort();
  return steps[steps.length >> 1] * steps.length * GAPS < Math.abs(values.at(-1) - values[0]);
}

// What a series is along: the coordinate of its dimension, else the numbers of its elements.
export function alongOf(coordinate, name, n) {
  const label = (i) => coordinate?.label(i) ?? String(i);
  if (coordinate?.isOrdered && n > 1 && isMostlyGaps(coordinate.values)) {
    const ticks = (low, high, most) => ticksBetween(low, high, most).filter(Number.isInteger).map((i) => [i, String(i)]);
    return { values: Float64Array.from({ length: n }, (_, i) => i), ticks, label, heading: `number along ${name}` };
  }
  if (coordinate?.isOrdered && n > 1) {
    return { values: coordinate.values, ticks: (...range) => coordinate.ticks(...range), label, heading: coordinate.heading() };
  }
  const ticks = (low, high, most) => ticksBetween(low, high, most).filter(Number.isInteger).map((i) => [i, label(i) || ""]);
  return { values: Float64Array.from({ length: n }, (_, i) => i), ticks, label, heading: coordinate?.heading() ?? name };
}

// `axis` is what `alongOf` gives.
export function seriesPlot({ values, words }, axis, meaning, title, span = []) {
  const inOrder = sorted(values);
  const ends = inOrder.length ? `from ${meaning.words(inOrder[0])} to ${meaning.words(inOrder.at(-1))}` : "none of them known";
  const told = `${title}: ${values.length} values, ${ends}`;
  const under = element("p", { class: "under", role: "status" });
  const along = axis.values;
  const isTurned = along.length > 1 && along[0] > along.at(-1);
  const turned = (each) => (isTurned ? Array.from(each).reverse() : Array.from(each));
  const place = element("div", { class: "plot", role: "img", "aria-label": told });
  const known = turned(Array.from(values, (value) => (Number.isFinite(value) ? value : null)));
  const isShort = values.length < 60;
  const isGap = (i) => (known[i] ?? null) === null;
  const lonely = [...known.keys()].filter((i) => !isGap(i) && isGap(i - 1) && isGap(i + 1)); // no line goes through them
  let named = new Map(); // words of round values
  const options = {
    axes: [
      {
        label: axis.heading, labelSize: 22, size: 34,
        splits(plot, _, low, high) {
          named = new Map(axis.ticks(low, high, Math.max(2, Math.floor(plot.width / APART))));
          return [...named.keys()];
        },
        values: (_, splits) => splits.map((value) => named.get(value)),
      },
      { label: meaning.units, labelSize: meaning.units ? 20 : 0 },
    ],
    line: { points: { show: true, size: isShort ? 5 : 3, filter: () => (isShort ? null : lonely) }, spanGaps: false },
    hooks: {
      setCursor: [({ cursor }) => {
        if (cursor.idx === null || cursor.idx === undefined) return;
        const i = isTurned ? values.length - 1 - cursor.idx : cursor.idx;
        under.textContent = `${words(i)} at ${axis.label(i)}`;
      }],
    },
  };
  drawnBy(place, options, [turned(along), known], ...span);
  const save = element("button", { type: "button", onclick: () => download("series.csv", new Blob([table(values, axis, meaning)], { type: "text/csv" })) }, "Download CSV");
  return element("figure", { class: "series" }, element("figcaption", {}, told), place, under, save, rows(values.length, words, axis.label));
}

// All values as CSV (RFC 4180): labels, and numbers with all of their digits; those that are missing are empty.
function table(values, axis, meaning) {
  const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const head = [axis.heading, meaning.units ? `value (${meaning.units})` : "value"];
  const lines = Array.from(values, (value, i) => [axis.label(i), Number.isNaN(value) ? "" : meaning.digits(value)]);
  return [head, ...lines].map((line) => line.map(quoted).join(",")).join("\r\n") + "\r\n";
}

function rows(n, words, label) {
  const shown = Array.from({ length: Math.min(n, MOST_ROWS) }, (_, i) =>
    element("tr", {}, element("th", { scope: "row" }, label(i)), element("td", {}, words(i))),
  );
  const more = n > MOST_ROWS ? `The first ${MOST_ROWS} of ${n} values` : "Values";
  const table = element("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "Values" }, element("table", {}, element("tbody", {}, ...shown)));
  return element("details", {}, element("summary", {}, more), table);
}

// How often values are, between their least and greatest.
export function histogram(values, heading) {
  const inOrder = sorted(values);
  if (inOrder.length < 2 || inOrder[0] === inOrder.at(-1)) return null;
  const [low, high] = [inOrder[0], inOrder.at(-1)];
  const counts = new Array(BINS).fill(0);
  for (const value of inOrder) counts[Math.min(BINS - 1, Math.floor(((value - low) / (high - low)) * BINS))] += 1;
  const middles = counts.map((_, i) => low + ((i + 0.5) / BINS) * (high - low));
  const told = `How often values are, from ${roughly(low)} to ${roughly(high)}`;
  const place = element("div", { class: "plot", role: "img", "aria-label": told });
  const paths = uPlot.paths.bars({ size: [0.95, 100] });
  return drawnBy(place, { height: 180, axes: [{ label: heading, labelSize: 22, size: 34 }, {}], line: { paths, fill: true, points: { show: false } } }, [middles, counts]);
}
