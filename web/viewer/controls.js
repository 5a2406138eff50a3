// What people choose by: sliders, lists, ticks and buttons.
import { element } from "./dom.js";

export function choice(words, options, value, onchange) {
  const name = words.toLowerCase().replaceAll(" ", "-");
  const entry = ([key, shown]) => element("option", { value: key, selected: String(key) === String(value) }, shown);
  const entries = options.map(([key, shown]) =>
    Array.isArray(shown) ? element("optgroup", { label: key }, ...shown.map((each) => entry([each, each]))) : entry([key, shown]),
  );
  const act = (event) => onchange(event.target.value);
  return element("label", {}, `${words} `, element("select", { name, onchange: act }, ...entries));
}

export function tick(words, checked, act) {
  const box = element("input", { type: "checkbox", checked, onchange: (event) => act(event.target.checked) });
  return element("label", {}, box, ` ${words}`);
}

export function number(name, words, value, act) {
  const onchange = ({ target }) => act(target.value === "" ? undefined : Number(target.value));
  return element("label", {}, `${words} `, element("input", { type: "number", step: "any", name, value: value ?? "", onchange }));
}

export function button(words, act, label) {
  return element("button", { type: "button", onclick: act, "aria-label": label }, words);
}

// A slider over `most` + 1 steps, with what each is called.
export function slider({ name, words, value, most, label, act }) {
  const shown = element("span", { class: "at" }, label(value));
  const slide = element("input", { type: "range", min: 0, max: most, value, name, "aria-valuetext": label(value) });
  const set = (chosen) => {
    slide.value = chosen;
    shown.textContent = label(chosen);
    slide.setAttribute("aria-valuetext", label(chosen));
    act(chosen);
  };
  slide.addEventListener("input", () => set(Number(slide.value)));
  return { place: element("label", { class: "slide" }, `${words}: `, shown, slide), set };
}
