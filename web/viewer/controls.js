// Elements out of values, where texts are never taken for HTML; and what people choose by: sliders, lists, ticks
// and buttons.

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

export function drawn(name, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

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

const PLAY_MS = 120; // at least, from step to step

// A slider over `most` + 1 steps, with what each is called, buttons that step, and one that plays; `act`
// takes a step and is done when it is shown.
export function slider({ name, value, most, label, act }) {
  const shown = element("span", { class: "at" }, label(value));
  const slide = element("input", { type: "range", min: 0, max: most, value, name, "aria-valuetext": label(value) });
  let isPlaying = false;
  const set = (chosen) => {
    slide.value = chosen;
    shown.textContent = label(chosen);
    slide.setAttribute("aria-valuetext", label(chosen));
    return act(chosen);
  };
  const step = (by) => set((Number(slide.value) + by + most + 1) % (most + 1));
  const play = async ({ currentTarget: pressed }) => {
    isPlaying = !isPlaying;
    pressed.setAttribute("aria-pressed", String(isPlaying));
    pressed.textContent = isPlaying ? "⏸" : "▶";
    while (isPlaying && pressed.isConnected) {
      await Promise.all([step(1), new Promise((go) => setTimeout(go, PLAY_MS))]);
    }
  };
  slide.addEventListener("input", () => set(Number(slide.value)));
  const buttons = [
    button("‹", () => step(-1), `Previous ${name}`),
    button("›", () => step(1), `Next ${name}`),
    element("button", { type: "button", onclick: play, "aria-label": `Play ${name}`, "aria-pressed": "false" }, "▶"),
  ];
  return element("div", { class: "slide" }, element("label", {}, `${name}: `, shown, slide), element("span", { class: "buttons" }, ...buttons));
}
