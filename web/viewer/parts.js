// Controls of channels or bands that make one picture: which, in what colours, between which limits.
import { button, choice, element, number, tick } from "./controls.js";

export function compositeControls(viewer) {
  const { shown } = viewer;
  const { composite } = shown;
  if (!composite || [shown.rows, shown.columns].includes(composite.axis)) return [];
  const words = composite.isOfChannels ? "Channels in one picture" : "Bands as red, green, blue";
  const whether = tick(words, shown.isComposed, (on) => {
    shown.isComposed = on;
    viewer.changedPlanes();
  });
  if (!shown.parts) return [element("div", { class: "controls" }, whether)];
  const rows = composite.parts.map((part) => (composite.isOfChannels ? ofChannel : ofBand)(viewer, part));
  const fit = button("Fit colours", () => {
    for (const part of shown.parts) part.low = part.high = undefined;
    viewer.repaint();
  });
  return [element("div", { class: "controls" }, whether, fit), element("ul", { class: "parts" }, ...rows)];
}

function ofChannel(viewer, part) {
  const { label, colour, isShown } = part;
  const box = tick(label, isShown, (on) => {
    part.isShown = on || viewer.shown.parts.length === 1; // one stays
    viewer.load();
  });
  const change = ({ target }) => changed(viewer, part, { colour: target.value.slice(1) });
  const pick = element("input", { type: "color", value: `#${colour}`, "aria-label": `Colour of ${label}`, oninput: change });
  return element("li", {}, box, pick, ...limits(viewer, part));
}

function ofBand(viewer, part) {
  const { opened, shown } = viewer;
  const { axis } = shown.composite;
  const bands = Array.from({ length: opened.shape[axis] }, (_, at) => [at, opened.label(axis, at)]);
  const take = (at) => {
    Object.assign(part, { at: Number(at) }, viewer.opened.isByte ? {} : { low: undefined, high: undefined });
    viewer.load();
  };
  return element("li", {}, choice(part.label, bands, part.at, take), ...limits(viewer, part));
}

function limits(viewer, part) {
  return [["low", "from"], ["high", "to"]].map(([name, words]) => {
    const made = number(`${name} of ${part.label}`, words, part[name], (value) => changed(viewer, part, { [name]: value }));
    made.querySelector("input").setAttribute("aria-label", `${part.label} ${words}`);
    return made;
  });
}

function changed(viewer, part, change) {
  Object.assign(part, change);
  viewer.repaint();
}
