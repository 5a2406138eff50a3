// The map of stored chunks: one pixel a chunk in a hidden picture, which is drawn at any scale.
// Columns of numbers come from the server, or from a file; gridref/faces/web/chunk_map.py says
// in which order.

const canvas = document.getElementById("chunk-map");
const told = document.getElementById("chunk-told");
const colours = document.getElementById("colours");
const hidden = [...document.querySelectorAll(".hidden-axis")];

const STATES = ["missing", "byte range of a source", "inline", "pending"];
const STATE_COLOURS = [[176, 184, 187], [34, 113, 178], [27, 158, 119], [217, 150, 0]];
const SOURCE_COLOURS = [
  [34, 113, 178], [230, 130, 20], [27, 140, 100], [200, 60, 110], [120, 90, 200], [160, 130, 30],
  [70, 170, 200], [190, 90, 50], [100, 150, 50], [150, 70, 150],
];
const STATE_NAMES = ["missing", "range", "inline"];
const NO_SOURCE = 2 ** 32 - 1;
const MOST_STORED = 2 ** 32 - 1; // stands for more, too
const MISSING = 0;
const NOTHING = 255;
const MOST_ASPECT = 16;

let map = null; // what was told, with how it is laid out
let picture = null;
let at = { scale: 1, x: 0, y: 0 };
let cursor = 0;
let asked = 0;

function bytesInWords(n) {
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (n < 1000) return `${unit === "B" ? n : n.toFixed(1)} ${unit}`;
    n /= 1000;
  }
  return `${n.toFixed(1)} TB`;
}

async function answered(address) {
  const response = await fetch(address, { headers: { accept: "application/json" } }).catch(() => {
    throw new Error("the server does not answer: is it still running, and this device online?");
  });
  if (!response.ok) {
    const text = await response.text();
    throw new Error(text.startsWith("{") ? JSON.parse(text).reason : text.trim());
  }
  return response;
}

// Files are compressed by gzip, whatever the server knows of them; what a server answers is not.
async function unpacked(response) {
  const body = await response.arrayBuffer();
  const [first, second] = new Uint8Array(body);
  if (first !== 0x1f || second !== 0x8b) return body;
  const stream = new Blob([body]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

function decoded(buffer) {
  const size = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)));
  const n = header.rows * header.columns;
  let offset = 4 + size;
  const column = (type, length) => {
    const values = new type(buffer, offset, length);
    offset += values.byteLength;
    return values;
  };
  return {
    ...header,
    n,
    rowStarts: column(Float64Array, header.rows),
    columnStarts: column(Float64Array, header.columns),
    stored: column(Uint32Array, n),
    source: column(Uint32Array, n),
    state: column(Uint8Array, n),
  };
}

function laidOut(found) {
  const { rows, columns, n } = found;
  const aspect = Math.max(rows / columns, columns / rows);
  if (aspect <= MOST_ASPECT && Math.max(rows, columns) <= 8192) {
    return { ...found, across: columns, down: rows };
  }
  const across = Math.ceil(Math.sqrt(n * 2.5)); // long ones go on in the next line
  return { ...found, across, down: Math.ceil(n / across) };
}

async function load() {
  const number = ++asked;
  const chosen = new Map(hidden.map((each) => [each.dataset.axis, each.value]));
  const axes = canvas.dataset.hidden.split(",").filter(Boolean).map((each) => each.split(":")[0]);
  const query = axes.map((axis) => chosen.get(axis) ?? "0").join(",");
  const response = await answered(canvas.dataset.map.replace("{at}", query));
  const found = laidOut(decoded(await unpacked(response)));
  if (number !== asked) return;
  const isFirst = map === null || map.across !== found.across || map.down !== found.down || kept.has("map-look");
  map = found;
  cursor = Math.min(cursor, map.n - 1);
  paint();
  if (isFirst) lookAt(kept.get("map-look"));
  kept.delete("map-look");
  draw();
  if (kept.has("map-chunk")) point(cursor, true);
  kept.delete("map-chunk");
  canvas.dataset.ready = String(map.n);
  if (map.left_out) say(`The first ${map.n} chunks; ${map.left_out} more are not on the map.`);
}

// Dark blue to yellow, equally bright steps: readable without colour vision.
function ramp(t) {
  const stops = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
  const place = Math.min(0.9999, Math.max(0, t)) * (stops.length - 1);
  const low = Math.floor(place);
  return stops[low].map((a, i) => Math.round(a + (stops[low + 1][i] - a) * (place - low)));
}

function sizeRange() {
  let low = Infinity;
  let high = 0;
  for (let i = 0; i < map.n; i++) {
    if (map.stored[i] === 0) continue;
    low = Math.min(low, map.stored[i]);
    high = Math.max(high, map.stored[i]);
  }
  return high ? [low, high] : [1, 1];
}

function palette() {
  if (colours.value === "source") {
    return (i) =>
      map.source[i] === NO_SOURCE
        ? STATE_COLOURS[map.state[i]]
        : SOURCE_COLOURS[map.source[i] % SOURCE_COLOURS.length];
  }
  if (colours.value === "size") {
    const [low, high] = sizeRange();
    const span = Math.log(high / low) || 1;
    return (i) =>
      map.stored[i] ? ramp(Math.log(map.stored[i] / low) / span) : STATE_COLOURS[map.state[i]];
  }
  return (i) => STATE_COLOURS[map.state[i]];
}

function paint() {
  const colour = palette();
  picture = document.createElement("canvas");
  picture.width = map.across;
  picture.height = map.down;
  const image = new ImageData(map.across, map.down);
  const pixels = new Uint32Array(image.data.buffer);
  for (let i = 0; i < map.n; i++) {
    if (map.state[i] === NOTHING) continue;
    const [red, green, blue] = colour(i);
    pixels[i] = (255 << 24) | (blue << 16) | (green << 8) | red;
  }
  picture.getContext("2d").putImageData(image, 0, 0);
  legend();
}

function legend() {
  const items = [];
  if (colours.value === "size") {
    const [low, high] = sizeRange();
    items.push([ramp(0), bytesInWords(low)], [ramp(1), bytesInWords(high)]);
  } else if (colours.value === "source") {
    items.push([STATE_COLOURS[0], "missing"], [SOURCE_COLOURS[0], "sources in turn"]);
  } else {
    for (const state of new Set(map.state)) {
      if (state !== NOTHING) items.push([STATE_COLOURS[state], STATES[state]]);
    }
  }
  const list = document.createElement("ul");
  list.className = "legend";
  list.id = "legend";
  for (const [colour, words] of items) {
    const item = document.createElement("li");
    item.append(swatch(colour), words);
    list.append(item);
  }
  document.getElementById("legend")?.remove();
  canvas.parentElement.after(list);
}

function svg(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function swatch(colour) {
  const made = svg("svg", { viewBox: "0 0 1 1", "aria-hidden": "true" });
  made.append(svg("rect", { width: 1, height: 1, fill: `rgb(${colour})` }));
  return made;
}

function fitted() {
  return Math.min(canvas.clientWidth / map.across, canvas.clientHeight / map.down, 40);
}

function fit() {
  at = { scale: fitted(), x: 0, y: 0 };
}

// The address holds what is shown of the map: colours, chunks along hidden axes, the chunk that is told, and
// how near it is looked at: how many times nearer than all of it, and what is in the middle.
let kept = new URLSearchParams();

function take() {
  kept = new URLSearchParams(location.hash.slice(1));
  const by = kept.get("map-colours");
  colours.value = ["source", "size"].includes(by) ? by : "state";
  const chunks = (kept.get("map-at") ?? "").split(",");
  hidden.forEach((each, number) => {
    each.value = chunks[number] || "0";
    each.parentElement.querySelector(".at").textContent = each.value;
  });
  const chunk = Number(kept.get("map-chunk"));
  cursor = Number.isInteger(chunk) && chunk > 0 ? chunk : 0;
}

function lookAt(text) {
  fit();
  const [nearer, x, y] = (text ?? "").split(",").map(Number);
  if (!(nearer > 1 && Number.isFinite(x + y))) return;
  at.scale = Math.min(64, at.scale * nearer);
  at.x = x - canvas.clientWidth / 2 / at.scale;
  at.y = y - canvas.clientHeight / 2 / at.scale;
  canvas.classList.add("closer");
}

function keep() {
  const state = new URLSearchParams(location.hash.slice(1));
  const nearer = at.scale / fitted();
  const middle = [at.x + canvas.clientWidth / 2 / at.scale, at.y + canvas.clientHeight / 2 / at.scale];
  const told = {
    "map-colours": colours.value === "state" ? "" : colours.value,
    "map-at": hidden.some(({ value }) => value !== "0") ? hidden.map(({ value }) => value).join(",") : "",
    "map-chunk": cursor || "",
    "map-look": nearer > 1.001 ? [nearer, ...middle].map((each) => Number(each.toFixed(6))).join(",") : "",
  };
  for (const [key, value] of Object.entries(told)) value === "" ? state.delete(key) : state.set(key, value);
  const text = state.toString();
  if (text !== location.hash.slice(1)) history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
}

let waiting = false;
function draw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    const ratio = devicePixelRatio;
    const [width, height] = [canvas.clientWidth * ratio, canvas.clientHeight * ratio];
    if (canvas.width !== Math.round(width)) canvas.width = width;
    if (canvas.height !== Math.round(height)) canvas.height = height;
    const context = canvas.getContext("2d");
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    const scale = at.scale * ratio;
    context.setTransform(scale, 0, 0, scale, -at.x * scale, -at.y * scale);
    context.imageSmoothingEnabled = scale < 1;
    context.drawImage(picture, 0, 0);
    if (at.scale > 6) separate(context);
    context.lineWidth = Math.max(2 / at.scale, 0.05);
    context.strokeStyle = getComputedStyle(canvas).color;
    context.strokeRect(cursor % map.across, Math.floor(cursor / map.across), 1, 1);
  });
}

function separate(context) {
  context.beginPath();
  for (let x = 0; x <= map.across; x++) {
    context.moveTo(x, 0);
    context.lineTo(x, map.down);
  }
  for (let y = 0; y <= map.down; y++) {
    context.moveTo(0, y);
    context.lineTo(map.across, y);
  }
  context.lineWidth = 1 / at.scale;
  context.strokeStyle = "rgba(255, 255, 255, .6)";
  context.stroke();
}

function zoom(factor, x = canvas.clientWidth / 2, y = canvas.clientHeight / 2) {
  if (!map) return;
  if (factor === 0) fit();
  else {
    const scale = Math.min(64, Math.max(at.scale * factor, 0.02));
    at.x += x / at.scale - x / scale;
    at.y += y / at.scale - y / scale;
    at.scale = scale;
  }
  canvas.classList.toggle("closer", at.scale > fitted()); // fingers move the map then, not the page
  draw();
  keep();
}

function say(words) {
  told.textContent = words;
}

let later = 0;
function point(number, soon) {
  if (!map || number < 0 || number >= map.n) return;
  cursor = number;
  draw();
  const { dataset } = canvas;
  const [row, column] = [Math.floor(number / map.columns), number % map.columns];
  const place = [];
  if (dataset.rows !== undefined) place.push(`${dataset.rows} ${row}`);
  place.push(`${dataset.columns} ${column}`);
  const words = `Chunk ${place.join(", ")}: ${STATES[map.state[number]] ?? "nothing"}`;
  const size = map.stored[number] ? `, ${bytesInWords(map.stored[number])} stored` : "";
  say(words + size);
  clearTimeout(later);
  if (map.state[number] === NOTHING || dataset.place === undefined) return;
  later = setTimeout(() => name(number, row, column, words + size), soon ? 0 : 150);
}

async function name(number, row, column, words) {
  const element = elementOf(row, column);
  const place = await (await answered(`${canvas.dataset.place}?at=${element}`)).json();
  if (cursor !== number || place.state !== "range") return;
  say(`${words}; ${place.source}, bytes ${place.offset} to ${place.offset + place.length}`);
}

// The first element of a chunk, of the axes that are not shown that of the chosen chunk.
function elementOf(row, column) {
  const shown = canvas.dataset.axes.split(",").map(Number);
  const element = [];
  if (shown.length === 2) element[shown[0]] = map.rowStarts[row];
  element[shown.at(-1)] = map.columnStarts[column];
  (canvas.dataset.hidden ? canvas.dataset.hidden.split(",") : []).forEach((each, number) => {
    element[Number(each.split(":")[0])] = map.hidden_at[number];
  });
  return element.join(",");
}

function under(event) {
  const box = canvas.getBoundingClientRect();
  const x = Math.floor((event.clientX - box.left) / at.scale + at.x);
  const y = Math.floor((event.clientY - box.top) / at.scale + at.y);
  return x < 0 || y < 0 || x >= map.across || y >= map.down ? -1 : y * map.across + x;
}

const pointers = new Map(); // that are down: one drags, two draw nearer
canvas?.addEventListener("pointerdown", (event) => {
  pointers.set(event.pointerId, event);
  if (map && pointers.size === 1) point(under(event), true);
  canvas.setPointerCapture(event.pointerId);
});
for (const kind of ["pointerup", "pointercancel"]) {
  canvas?.addEventListener(kind, (event) => {
    pointers.delete(event.pointerId);
    if (map) keep();
  });
}
canvas?.addEventListener("pointermove", (event) => {
  if (!map) return;
  const before = pointers.get(event.pointerId);
  if (!before) return point(under(event), false);
  const [other] = [...pointers.values()].filter((each) => each.pointerId !== event.pointerId);
  if (other) {
    const apart = (each) => Math.hypot(each.clientX - other.clientX, each.clientY - other.clientY);
    const box = canvas.getBoundingClientRect();
    const [x, y] = [(event.clientX + other.clientX) / 2 - box.left, (event.clientY + other.clientY) / 2 - box.top];
    zoom(apart(event) / Math.max(1, apart(before)), x, y);
  } else {
    at.x -= (event.clientX - before.clientX) / at.scale;
    at.y -= (event.clientY - before.clientY) / at.scale;
    draw();
  }
  pointers.set(event.pointerId, event);
});
canvas?.addEventListener(
  "wheel",
  (event) => {
    if (!event.ctrlKey && document.activeElement !== canvas) return; // else the page scrolls
    event.preventDefault();
    zoom(event.deltaY < 0 ? 1.25 : 0.8, event.offsetX, event.offsetY);
  },
  { passive: false },
);
canvas?.addEventListener("keydown", (event) => {
  if (!map || event.altKey || event.ctrlKey || event.metaKey) return;
  const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -map.across, ArrowDown: map.across }[event.key];
  const factor = { "+": 2, "=": 2, "-": 0.5, 0: 0 }[event.key];
  if (step !== undefined) {
    point(cursor + step, true);
    follow();
    keep();
  } else if (factor !== undefined) zoom(factor);
  else if (event.key === "Home") point(0, true);
  else return;
  event.preventDefault();
});

function follow() {
  const [x, y] = [cursor % map.across, Math.floor(cursor / map.across)];
  const [width, height] = [canvas.clientWidth / at.scale, canvas.clientHeight / at.scale];
  at.x = Math.min(Math.max(at.x, x + 1 - width), x);
  at.y = Math.min(Math.max(at.y, y + 1 - height), y);
}

// How many chunks there are of each size: counted here if the map has them all and knows their sizes.
function counted() {
  const counts = { states: {}, sizes: [], stored_bytes: 0, left_out: map.left_out };
  const [byState, byPower] = [new Array(STATE_NAMES.length).fill(0), new Array(32).fill(0)];
  for (let i = 0; i < map.n; i++) {
    const state = map.state[i];
    if (state === NOTHING) continue;
    byState[state] += 1;
    if (state === MISSING) continue;
    const stored = map.stored[i];
    if (stored === MOST_STORED) return null;
    byPower[31 - Math.clz32(stored || 1)] += 1;
    counts.stored_bytes += stored;
  }
  byState.forEach((n, state) => n && (counts.states[STATE_NAMES[state]] = n));
  byPower.forEach((n, power) => n && counts.sizes.push([2 ** power, n]));
  return counts;
}

async function sizes() {
  const place = document.getElementById("sizes");
  const isWhole = map && canvas.dataset.hidden.split(",").every((each) => !each || each.endsWith(":1"));
  const counts = (isWhole ? counted() : null) ?? (await (await answered(canvas.dataset.sizes)).json());
  const most = Math.max(...counts.sizes.map(([, n]) => n), 1);
  const table = document.createElement("table");
  table.createCaption().textContent =
    Object.entries(counts.states).map(([state, n]) => `${n} ${state}`).join(", ") +
    `; ${bytesInWords(counts.stored_bytes)} stored` +
    (counts.left_out ? `; ${counts.left_out} chunks more are not counted` : "");
  const head = table.createTHead().insertRow();
  for (const words of ["size", "chunks", "share"]) {
    const cell = document.createElement("th");
    cell.scope = "col";
    cell.textContent = words;
    head.append(cell);
  }
  const body = table.createTBody();
  for (const [low, n] of counts.sizes) {
    const row = body.insertRow();
    const name = document.createElement("th");
    name.scope = "row";
    name.textContent = `${bytesInWords(low)} to ${bytesInWords(2 * low)}`;
    row.append(name);
    row.insertCell().textContent = n;
    const bar = svg("svg", { viewBox: "0 0 200 14", preserveAspectRatio: "none", "aria-hidden": "true" });
    bar.append(svg("rect", { class: "bar", width: Math.max(1, (200 * n) / most), height: 14 }));
    row.insertCell().append(bar);
  }
  place.replaceChildren(table);
}

function failed(error) {
  const again = document.createElement("button");
  again.type = "button";
  again.textContent = "Try again";
  again.addEventListener("click", begin);
  told.replaceChildren(`The map could not be read: ${error.message} `, again);
}

function begin() {
  say("");
  load().catch(failed).then(sizes).catch(failed);
}

if (canvas) {
  // A million chunks take the server a while, as does the first picture: first what is in sight.
  const sight = new IntersectionObserver(
    (entries) => {
      if (!entries.some(({ isIntersecting }) => isIntersecting)) return;
      sight.disconnect();
      begin();
    },
    { rootMargin: "50%" },
  );
  sight.observe(canvas);
  take();
  addEventListener("hashchange", () => {
    if (!map || !location.hash.includes("=")) return;
    take();
    load().catch(failed);
  });
  colours.addEventListener("change", () => {
    if (!map) return;
    paint();
    draw();
    keep();
  });
  for (const each of hidden) {
    each.addEventListener("input", () => {
      each.parentElement.querySelector(".at").textContent = each.value;
      load().then(keep).catch(failed);
    });
  }
  for (const button of document.querySelectorAll("[data-zoom]")) {
    button.addEventListener("click", () => zoom(Number(button.dataset.zoom)));
  }
  new ResizeObserver(() => map && draw()).observe(canvas);
}
