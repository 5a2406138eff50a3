// Arrays that are no pictures: nothing, a single value, a series, or texts.
import { askWhether } from "./asking.js";
import { element } from "./controls.js";
import { alongOf, seriesPlot } from "./series.js";

const MOST_TEXTS = 200;

// Whether it is one of these; then it is shown.
export async function shownAsList(place, told, opened) {
  const { shape, array } = opened;
  const isPicture = shape.length > 1 && !shape.includes(0) && !array.isText;
  if (isPicture) return false;
  const show = shape.includes(0) ? nothing : shape.length === 0 ? single : series;
  await show(place, told, opened);
  return true;
}

function nothing(place, told, { dims, shape }) {
  const empty = dims.filter((_, axis) => shape[axis] === 0);
  place.replaceChildren(told);
  told.textContent = `There are no values: ${empty.join(", ")} has length 0.`;
  place.dataset.ready = "empty";
}

async function single(place, told, { array, meaning }) {
  const value = await array.value([]);
  place.replaceChildren(told);
  told.textContent = array.isText ? value : meaning.wordsOf(value);
  place.dataset.ready = "scalar";
}

async function series(place, told, opened) {
  const { array, shape, coordinates, dims, meaning } = opened;
  const axis = shape.length - 1;
  const at = shape.map(() => 0);
  await askWhether(array.bytesOf([axis], Infinity), place, await array.travelling(axis, at));
  await opened.labels;
  const { values, words } = await array.series(axis, at);
  const shown = array.isText
    ? element("ol", { class: "texts" }, ...values.slice(0, MOST_TEXTS).map((text) => element("li", {}, text)))
    : seriesPlot({ values, words }, alongOf(coordinates[axis], dims[axis], shape[axis]), meaning, opened.title);
  const part = array.isText && values.length > MOST_TEXTS ? `The first ${MOST_TEXTS} of ${values.length} texts` : "";
  place.replaceChildren(...notes(opened), shown, part);
  place.dataset.ready = "series";
}

// What could not be read of it, though the rest is shown.
export function notes({ problems }) {
  return problems.map((words) => element("p", { class: "problem" }, words));
}
