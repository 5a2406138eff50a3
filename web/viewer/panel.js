// The controls of a picture: sliders through what is not shown, and how the rest is drawn.
import { button, choice, element, number, slider, tick } from "./controls.js";
import { compositeControls } from "./parts.js";
import { GROUPS } from "./colours/scales.js";
import { NORMS } from "./colours/limits.js";
import { WHOLE } from "./glass.js";
import { VIEWS } from "./map/views.js";
import { MOST_ALONG } from "./shown.js";

export function panel(viewer) {
  const isSmall = matchMedia("(max-width: 40rem)").matches;
  const wasOpen = viewer.controls.querySelector("details")?.open ?? !isSmall;
  const folded = element("details", { open: wasOpen }, element("summary", {}, "Display"), element("div", { class: "controls" }, ...display(viewer)), ...compositeControls(viewer));
  const all = () => [...viewer.controls.querySelectorAll("input, select, button, summary")];
  const focused = all().indexOf(document.activeElement);
  viewer.controls.replaceChildren(element("div", { class: "controls" }, ...sliders(viewer)), folded);
  all()[focused]?.focus();
}

function sliders(viewer) {
  const { opened, shown } = viewer;
  const through = shown.hiddenAxes().filter((axis) => opened.shape[axis] > 1);
  const wide = [shown.rows, shown.columns].filter((axis) => opened.shape[axis] > MOST_ALONG);
  return [
    ...through.map((axis) => [axis, "", opened.shape[axis] - 1, shown.at]),
    ...wide.map((axis) => [axis, "from ", opened.shape[axis] - MOST_ALONG, shown.windows]),
  ].map(([axis, prefix, most, places]) => {
    const name = `${prefix}${opened.names[axis]}`;
    const act = (value) => {
      places[axis] = value;
      return viewer.load();
    };
    return slider({ name, value: Math.min(places[axis] ?? 0, most), most, label: (i) => opened.label(axis, i), act });
  });
}

export function zooms(viewer) {
  const ways = [["+", 2, "Zoom into the picture"], ["−", 0.5, "Zoom out of the picture"], ["⤢", 0, "All of the picture"]];
  const made = ways.map(([sign, factor, words]) => button(sign, () => viewer.planes && viewer.picture.zoom(factor), words));
  return element("span", { class: "buttons" }, ...made);
}

function display(viewer) {
  const { opened, shown } = viewer;
  const axes = opened.names.map((name, axis) => [axis, name]);
  const sizes = viewer.levels.map(({ shape }, level) => [level, shape.join(" × ")]);
  const turn = (name, other) => (value) => {
    if (shown[other] === Number(value)) shown[other] = shown[name];
    shown[name] = Number(value);
    viewer.changedAxes();
  };
  return [
    ...(viewer.levels.length > 1 ? [choice("Detail", sizes, shown.level, (level) => viewer.changeLevel(Number(level)))] : []),
    choice("Up", axes, shown.rows, turn("rows", "columns")),
    choice("Across", axes, shown.columns, turn("columns", "rows")),
    ...colours(viewer),
    ...(viewer.earth ? [choice("View", VIEWS, viewer.view(), (view) => viewer.redraw({ view, centre: undefined, glass: WHOLE }))] : []),
    ...(viewer.isMap() ? [tick("Coastlines", shown.coasts, (on) => viewer.redraw({ coasts: on }))] : []),
    tick("Stretch", shown.isStretched, (on) => viewer.redraw({ isStretched: on })),
    choice("Series along", axes, shown.seriesAxis(), (axis) => viewer.plotAlong(Number(axis))),
  ];
}

function colours(viewer) {
  const { opened, shown } = viewer;
  if (shown.parts || opened.meaning.flags) return [];
  const repaint = (name) => (value) => viewer.repaint({ [name]: value });
  return [
    choice("Colours", GROUPS, shown.scale, repaint("scale")),
    tick("Reversed", shown.isReversed, repaint("isReversed")),
    choice("Spread", NORMS, shown.norm, repaint("norm")),
    number("low", "from", shown.low, repaint("low")),
    number("high", "to", shown.high, repaint("high")),
    button("Fit colours", () => viewer.repaint({ low: undefined, high: undefined })),
  ];
}
