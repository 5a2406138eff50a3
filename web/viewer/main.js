// The viewer of an array's page. It reads the portable view itself; the server draws nothing.
import { categorised, categoryColour, mixed, rangeOf, scaled, SCALES, steps } from "./colours.js";
import { coordinateOf, ShownArray } from "./array.js";
import { drawCoasts } from "./coast.js";
import { choice, drawn, element } from "./dom.js";
import { plotted } from "./plot.js";
import { preview } from "./preview.js";
import { PublishedStore } from "./published.js";
import { readState, writeState } from "./state.js";
import { Store } from "./store.js";

const MOST_ALONG = 2048; // of larger planes a window is shown
const MOST_LABELS = 1_000_000;
const MOST_BYTES = 128e6; // more is read when asked to
const MOST_EVER = 4e9; // more is not read: it would not fit into a page
const ASK_MS = 150;
const MOST_ZOOM = 64;
const MOST_TEXTS = 200;
const ZOOMS = { "+": 2, "=": 2, "-": 0.5, 0: 0 };

class Viewer {
  constructor(place) {
    this.place = place;
    this.levels = JSON.parse(place.dataset.levels);
    this.told = element("p", { role: "status", id: "viewer-told" });
    this.pictures = 0;
  }

  // One of the array's levels of detail, of which most have one only; `labels` is done when the values of
  // its coordinates are there, which are read beside its own, or are known not to come.
  async open(number) {
    const { path, dims, coordinates: paths } = this.levels[number];
    const [array, ...coordinates] = await Promise.all([
      ShownArray.open(this.store, path),
      ...paths.map((each) => (each ? coordinateOf(this.store, each, MOST_LABELS) : null)),
    ]);
    Object.assign(this, { array, coordinates, path, dims, shape: array.shape, level: number, planes: undefined });
    this.unlabelled = [];
    this.labels = Promise.all(coordinates.map((each, axis) => each?.reading.catch((error) => this.number(axis, error))));
  }

  // Labels that cannot be read are no reason to show nothing: numbers stand for them.
  number(axis, error) {
    this.coordinates[axis] = null;
    this.unlabelled.push(`Labels of ${this.dims[axis]} could not be read, so that it is numbered: ${error.message}`);
  }

  notes() {
    return this.unlabelled.map((words) => element("p", { class: "problem" }, words));
  }

  // The finest level that is shown as a whole.
  wholeLevel() {
    const found = this.levels.findIndex(({ shape }) => shape.every((length) => length <= MOST_ALONG));
    return found < 0 ? this.levels.length - 1 : found;
  }

  async start() {
    const { view, chunks, documents } = this.place.dataset;
    this.store = chunks ? new PublishedStore(chunks) : new Store(view, JSON.parse(documents));
    const asked = readState();
    const number = this.levels.length > 1 ? this.wholeLevel() : 0;
    await this.open(asked.level in this.levels ? Number(asked.level) : number);
    if (this.shape.includes(0)) return this.showNothing();
    if (this.shape.length === 0) return this.showScalar();
    if (this.shape.length === 1 || this.array.isText) return this.showSeriesOnly();
    this.begin(asked);
    await this.askWhether(this.array.bytesOf([this.rows, this.columns], MOST_ALONG), this.place);
    await Promise.all([this.labels, this.readPlanes().catch(() => {})]); // load() tells what failed
    this.build();
    await this.load();
  }

  // Much is read only when a button is pressed, which stands where the values will.
  async askWhether(n_bytes, where) {
    if (n_bytes <= MOST_BYTES) return;
    if (n_bytes > MOST_EVER) {
      throw new Error(`its chunks take ${sizeInWords(n_bytes)}, more than a page holds (gridref serve --chunks makes smaller ones)`);
    }
    const words = `Show values (reads up to ${sizeInWords(n_bytes)})`;
    await new Promise((go) => {
      where.replaceChildren(element("button", { type: "button", onclick: go }, words));
      where.dataset.ready = "asks";
    });
    where.replaceChildren(element("p", { role: "status" }, "Reading …"));
  }

  showNothing() {
    const empty = this.dims.filter((_, axis) => this.shape[axis] === 0);
    this.place.replaceChildren(this.told);
    this.say(`There are no values: ${empty.join(", ")} has length 0.`);
    this.place.dataset.ready = "empty";
  }

  async showScalar() {
    const value = await this.array.value([]);
    this.place.replaceChildren(this.told);
    this.say(this.array.isText ? value : this.array.meaning.wordsOf(value));
    this.place.dataset.ready = "scalar";
  }

  async showSeriesOnly() {
    const axis = this.shape.length - 1;
    await this.askWhether(this.array.bytesOf([axis], Infinity), this.place);
    await this.labels;
    const { values, words } = await this.array.series(axis, this.shape.map(() => 0));
    const shown = this.array.isText
      ? element("ol", { class: "texts" }, ...values.slice(0, MOST_TEXTS).map((text) => element("li", {}, text)))
      : plotted({ values, words }, (i) => this.label(axis, i), this.array.meaning, this.path);
    const part = this.array.isText && values.length > MOST_TEXTS ? `The first ${MOST_TEXTS} of ${values.length} texts` : "";
    this.place.replaceChildren(...this.notes(), shown, part);
    this.place.dataset.ready = "series";
  }

  // Axes and places out of the address; what it leaves out, or what is not there, by default.
  begin(asked) {
    const inside = (axis, text) => Math.min(this.shape[axis] - 1, Math.max(0, Math.floor(Number(text)) || 0));
    const [rows, columns] = this.defaultAxes();
    const axis = (name) => (this.dims.includes(name) ? this.dims.indexOf(name) : undefined);
    this.rows = axis(asked.rows) ?? rows;
    this.columns = axis(asked.columns) ?? columns;
    if (this.rows === this.columns) [this.rows, this.columns] = [rows, columns];
    this.at = this.dims.map((_, number) => inside(number, asked[`at${number}`]));
    this.scale = asked.colours ?? "steady";
    this.low = asked.low === undefined ? undefined : Number(asked.low);
    this.high = asked.high === undefined ? undefined : Number(asked.high);
    this.coasts = asked.coasts !== "0";
    this.bands = this.bandAxis();
    this.inColour = this.bands !== null && (asked.rgb ?? (this.array.isByte ? "1" : "0")) === "1";
    this.series = asked.series === undefined ? undefined : axis(asked.series);
    this.glass = { zoom: 1, x: 0, y: 0 };
    this.windows = {};
    for (const each of [0, 1]) {
      const along = each ? this.columns : this.rows;
      this.windows[along] = inside(along, asked[`from${along}`]);
    }
  }

  // Up and across are what coordinates say; else the last axes, as in pictures.
  defaultAxes() {
    const up = this.coordinates.findIndex((each) => each?.isVertical);
    const across = this.coordinates.findIndex((each) => each?.isHorizontal);
    if (up >= 0 && across >= 0) return [up, across];
    const others = this.dims.map((_, axis) => axis).filter((axis) => axis !== this.bandAxis());
    return others.length < 2 ? [0, 1] : others.slice(-2);
  }

  bandAxis() {
    const found = this.dims.findIndex(
      (dim, axis) => /^(band|bands|sample|samples|channel|channels|rgb|s|c)(_\d+)?$/i.test(dim) && [3, 4].includes(this.shape[axis]),
    );
    return found < 0 || this.dims.length < 3 ? null : found;
  }

  label(axis, index) {
    return this.coordinates[axis]?.label(index) ?? String(index);
  }

  failed(error) {
    this.say(`This could not be read: ${error.message}`);
    this.place.dataset.ready = "failed";
  }

  say(words) {
    this.told.textContent = words;
  }

  // ---- controls

  build() {
    this.picture = document.createElement("canvas");
    this.canvas = element(
      "canvas",
      {
        id: "viewer-canvas", tabindex: 0, role: "img",
        "aria-label": `Picture of ${this.path}: arrow keys move, Enter plots the series through a point`,
        "aria-describedby": "viewer-told",
        onkeydown: (event) => this.key(event),
        onpointerdown: (event) => { this.drag = { x: event.clientX, y: event.clientY, far: false }; },
        onpointermove: (event) => this.move(event),
        onclick: (event) => {
          if (this.drag?.far) return;
          this.point(this.under(event));
          this.plot();
        },
      },
      "A picture of values.",
    );
    this.controls = element("div", { class: "controls" });
    this.legend = element("div", { id: "viewer-legend" });
    this.plotted = element("div", { id: "viewer-series" });
    this.place.replaceChildren(
      ...this.notes(), this.controls, element("div", { class: "canvas" }, this.canvas), this.legend, this.told, this.plotted,
    );
    this.canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    this.control();
  }

  hiddenAxes() {
    const shown = [this.rows, this.columns, ...(this.inColour ? [this.bands] : [])];
    return this.dims.map((_, axis) => axis).filter((axis) => !shown.includes(axis));
  }

  control() {
    const axes = this.dims.map((dim, axis) => [axis, dim]);
    const choose = (name) => (event) => {
      const [axis, other] = [Number(event.target.value), name === "rows" ? "columns" : "rows"];
      if (this[other] === axis) this[other] = this[name];
      this[name] = axis;
      this.changedAxes();
    };
    const parts = [
      ...this.levelControl(),
      choice("Up", axes, this.rows, choose("rows")),
      choice("Across", axes, this.columns, choose("columns")),
      ...this.colourControls(),
      ...this.hiddenAxes().map((axis) => this.slider(axis, this.at[axis], this.shape[axis] - 1, (value) => { this.at[axis] = value; })),
      ...[this.rows, this.columns]
        .filter((axis) => this.shape[axis] > MOST_ALONG)
        .map((axis) => this.slider(axis, this.windows[axis] ?? 0, this.shape[axis] - MOST_ALONG, (value) => { this.windows[axis] = value; }, "from ")),
      ...this.zoomControls(),
      choice("Series along", axes, this.seriesAxis(), (event) => { this.series = Number(event.target.value); this.plot(); }),
    ];
    this.controls.replaceChildren(...parts);
  }

  levelControl() {
    if (this.levels.length < 2) return [];
    const sizes = this.levels.map(({ shape }, number) => [number, shape.join(" × ")]);
    const open = async (event) => {
      await this.open(Number(event.target.value));
      await this.labels;
      this.at = this.at.map((at, axis) => Math.min(at, this.shape[axis] - 1));
      this.windows = {};
      this.leave();
      this.control();
      await this.load();
    };
    return [choice("Detail", sizes, this.level, (event) => open(event).catch((error) => this.failed(error)))];
  }

  colourControls() {
    const parts = [];
    if (this.bands !== null) {
      parts.push(this.tick("Bands as red, green, blue", this.inColour, (on) => { this.inColour = on; this.changedAxes(); }));
    }
    if (!this.inColour && !this.array.meaning.flags) {
      parts.push(choice("Colours", SCALES, this.scale, (event) => { this.scale = event.target.value; this.paint(); }));
      parts.push(this.bound("low", "from"), this.bound("high", "to"));
      parts.push(element("button", { type: "button", onclick: () => { this.low = this.high = undefined; this.paint(); this.control(); } }, "Fit colours"));
    }
    if (this.isMap()) parts.push(this.tick("Coastlines", this.coasts, (on) => { this.coasts = on; this.draw(); this.keep(); }));
    return parts;
  }

  zoomControls() {
    const ways = [["+", 2, "Zoom into the picture"], ["−", 0.5, "Zoom out of the picture"], ["⤢", 0, "All of the picture"]];
    return ways.map(([sign, factor, words]) =>
      element("button", { type: "button", "aria-label": words, onclick: () => this.planes && this.look(factor) }, sign),
    );
  }

  tick(words, checked, act) {
    const box = element("input", { type: "checkbox", checked, onchange: (event) => act(event.target.checked) });
    return element("label", {}, box, ` ${words}`);
  }

  bound(name, words) {
    const box = element("input", {
      type: "number", step: "any", name, value: this[name] ?? "",
      onchange: (event) => { this[name] = event.target.value === "" ? undefined : Number(event.target.value); this.paint(); },
    });
    return element("label", {}, `${words} `, box);
  }

  slider(axis, value, most, act, prefix = "") {
    const shown = element("span", { class: "at" }, this.label(axis, value));
    const slide = element("input", {
      type: "range", min: 0, max: most, value, name: `${prefix}${this.dims[axis]}`,
      "aria-valuetext": this.label(axis, value),
      oninput: (event) => {
        const chosen = Number(event.target.value);
        act(chosen);
        shown.textContent = this.label(axis, chosen);
        event.target.setAttribute("aria-valuetext", this.label(axis, chosen));
        this.load();
      },
    });
    return element("label", {}, `${prefix}${this.dims[axis]}: `, shown, slide);
  }

  seriesAxis() {
    return this.series ?? this.hiddenAxes()[0] ?? this.columns;
  }

  changedAxes() {
    this.low = this.high = undefined;
    this.leave();
    this.control();
    this.load();
  }

  // ---- values

  window(axis) {
    const start = Math.min(this.windows[axis] ?? 0, Math.max(0, this.shape[axis] - MOST_ALONG));
    return [start, Math.min(this.shape[axis], start + MOST_ALONG)];
  }

  // Reads what is asked for now; of sliders that move on meanwhile, the last place only.
  async load() {
    this.wanted = true;
    this.isStale = true;
    if (this.loading) return;
    this.loading = true;
    try {
      while (this.wanted) {
        this.wanted = false;
        await this.loadOnce();
      }
    } catch (error) {
      this.failed(error);
    } finally {
      this.loading = false;
    }
  }

  shownWindows() {
    return { [this.rows]: this.window(this.rows), [this.columns]: this.window(this.columns) };
  }

  readPlanes() {
    const bands = this.inColour ? [0, 1, 2] : [null];
    return Promise.all(
      bands.map((band) => {
        const at = [...this.at];
        if (band !== null) at[this.bands] = band;
        return this.array.plane(this.rows, this.columns, at, this.shownWindows());
      }),
    );
  }

  async loadOnce() {
    const { rows, columns } = this;
    const windows = this.shownWindows();
    const planes = await this.readPlanes();
    if (rows !== this.rows || columns !== this.columns) return;
    const [{ height, width }] = planes;
    this.planes = planes.map(({ values }) => values);
    this.words = planes.map(({ words }) => words);
    this.origin = [windows[rows][0], windows[columns][0]];
    this.isStale = this.wanted;
    Object.assign(this, { height, width });
    this.picture.width = width;
    this.picture.height = height;
    this.paint();
    this.pictures += 1;
    this.place.dataset.ready = String(this.pictures);
    if (this.cursor !== undefined) this.tell();
  }

  paint() {
    if (!this.planes) return;
    const { flags } = this.array.meaning;
    const [plane] = this.planes;
    let pixels;
    if (this.inColour) {
      const top = this.array.isByte ? 255 : Math.max(...this.planes.map((each) => rangeOf(each)?.[1] ?? 1));
      pixels = mixed(this.planes, top);
      this.legend.replaceChildren();
    } else if (flags) {
      pixels = categorised(plane, flags);
      this.showCategories(flags);
    } else {
      // The first values' range stays while sliders move: colours mean the same then.
      const range = rangeOf(plane);
      if (range && (this.low === undefined || this.high === undefined)) {
        this.low ??= range[0];
        this.high ??= range[1];
        this.control();
      }
      pixels = scaled(plane, this.scale, this.low ?? 0, this.high ?? 1);
      if (range) this.showScale();
      else this.legend.replaceChildren(element("p", {}, "No values here."));
    }
    const image = new ImageData(new Uint8ClampedArray(pixels.buffer), this.width, this.height);
    this.picture.getContext("2d").putImageData(image, 0, 0);
    this.draw();
    this.keep();
  }

  showScale() {
    const bar = drawn("svg", { viewBox: "0 0 256 12", preserveAspectRatio: "none", "aria-hidden": "true", class: "scale" });
    steps(this.scale).forEach((colour, i) => bar.append(drawn("rect", { x: i, width: 1.5, height: 12, fill: `rgb(${colour})` })));
    const [low, high] = [this.low, this.high].map((value) => this.array.meaning.words(value));
    this.legend.replaceChildren(element("p", { class: "legend" }, low, bar, high));
  }

  showCategories(flags) {
    const items = [...flags].map(([value, words], i) => {
      const patch = drawn("svg", { viewBox: "0 0 1 1", "aria-hidden": "true" }, drawn("rect", { width: 1, height: 1, fill: `rgb(${categoryColour(i)})` }));
      return element("li", {}, patch, `${value}: ${words}`);
    });
    this.legend.replaceChildren(element("ul", { class: "legend" }, ...items));
  }

  // ---- the picture

  isMap() {
    return Boolean(this.coordinates[this.rows]?.isLatitude && this.coordinates[this.columns]?.isLongitude);
  }

  // Where elements lie on the canvas: north is up, east is right, and maps are not stretched.
  layout() {
    const up = this.coordinates[this.rows];
    const across = this.coordinates[this.columns];
    let [width, height] = [this.canvas.clientWidth / this.width, this.canvas.clientHeight / this.height];
    if (up?.isVertical && across?.isHorizontal && this.width > 1 && this.height > 1) {
      const span = (each, n) => Math.abs(each.values.at(-1) - each.values[0]) / Math.max(1, n - 1);
      const aspect = span(up, this.shape[this.rows]) / span(across, this.shape[this.columns]);
      if (Number.isFinite(aspect) && aspect > 0) {
        width = Math.min(width, height / aspect);
        height = width * aspect;
      }
    }
    const isTurned = Boolean(up?.isVertical && up.ascends);
    const isMirrored = Boolean(across?.isHorizontal && !across.ascends);
    return { width, height, isTurned, isMirrored };
  }

  draw() {
    if (!this.planes) return;
    const ratio = devicePixelRatio;
    this.canvas.width = Math.round(this.canvas.clientWidth * ratio);
    this.canvas.height = Math.round(this.canvas.clientHeight * ratio);
    const { width, height, isTurned, isMirrored } = this.layout();
    const context = this.canvas.getContext("2d");
    const { zoom, x, y } = this.glass;
    context.setTransform(zoom * ratio, 0, 0, zoom * ratio, -x * zoom * ratio, -y * zoom * ratio);
    context.transform(
      isMirrored ? -width : width, 0, 0, isTurned ? -height : height,
      isMirrored ? width * this.width : 0, isTurned ? height * this.height : 0,
    );
    context.imageSmoothingEnabled = false;
    context.drawImage(this.picture, 0, 0);
    if (this.coasts && this.isMap()) this.drawCoasts(context);
    if (this.cursor !== undefined) {
      const [row, column] = this.cursor;
      context.lineWidth = 0.15;
      context.strokeStyle = "#e0007a";
      context.strokeRect(column, row, 1, 1);
    }
  }

  drawCoasts(context) {
    context.save();
    context.beginPath();
    context.rect(0, 0, this.width, this.height);
    context.clip();
    const { width } = this.layout();
    context.lineWidth = 1 / (width * this.glass.zoom);
    context.strokeStyle = "#000000";
    const [row, column] = this.origin;
    const part = (axis, start, n) => this.coordinates[axis].values.subarray(start, start + n);
    drawCoasts(context, part(this.columns, column, this.width), part(this.rows, row, this.height));
    context.restore();
  }

  under(event) {
    const box = this.canvas.getBoundingClientRect();
    const { width, height, isTurned, isMirrored } = this.layout();
    const { zoom, x, y } = this.glass;
    let column = Math.floor(((event.clientX - box.left) / zoom + x) / width);
    let row = Math.floor(((event.clientY - box.top) / zoom + y) / height);
    if (isMirrored) column = this.width - 1 - column;
    if (isTurned) row = this.height - 1 - row;
    return [row, column];
  }

  // Looks closer at a point of the canvas, or from further away; 0 shows everything.
  look(factor, x = this.canvas.clientWidth / 2, y = this.canvas.clientHeight / 2) {
    const { glass } = this;
    const zoom = Math.min(MOST_ZOOM, Math.max(1, glass.zoom * factor));
    this.shift(glass.x + x / glass.zoom - x / zoom, glass.y + y / glass.zoom - y / zoom, zoom);
  }

  shift(x, y, zoom = this.glass.zoom) {
    const inside = (at, length) => Math.min(Math.max(0, at), length * (1 - 1 / zoom));
    this.glass = { zoom, x: inside(x, this.canvas.clientWidth), y: inside(y, this.canvas.clientHeight) };
    this.canvas.classList.toggle("closer", zoom > 1);
    this.draw();
  }

  wheel(event) {
    if (!this.planes || (!event.ctrlKey && document.activeElement !== this.canvas)) return; // the page scrolls
    event.preventDefault();
    this.look(event.deltaY < 0 ? 1.25 : 0.8, event.offsetX, event.offsetY);
  }

  move(event) {
    const { drag, glass } = this;
    if (!drag || !event.buttons || glass.zoom === 1) return this.point(this.under(event));
    const [x, y] = [event.clientX - drag.x, event.clientY - drag.y];
    this.drag = { x: event.clientX, y: event.clientY, far: drag.far || Math.hypot(x, y) > 2 };
    this.shift(glass.x - x / glass.zoom, glass.y - y / glass.zoom);
  }

  // Moves what is seen to where the cursor is.
  follow() {
    const { width, height, isTurned, isMirrored } = this.layout();
    const [row, column] = this.cursor;
    const left = width * (isMirrored ? this.width - 1 - column : column);
    const top = height * (isTurned ? this.height - 1 - row : row);
    const { zoom, x, y } = this.glass;
    const [wide, high] = [this.canvas.clientWidth / zoom, this.canvas.clientHeight / zoom];
    this.shift(Math.min(Math.max(x, left + width - wide), left), Math.min(Math.max(y, top + height - high), top));
  }

  key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey || !this.planes) return;
    const { isTurned, isMirrored } = this.layout();
    const [up, right] = [isTurned ? 1 : -1, isMirrored ? -1 : 1];
    const step = { ArrowUp: [up, 0], ArrowDown: [-up, 0], ArrowRight: [0, right], ArrowLeft: [0, -right] }[event.key];
    if (step) {
      const [row, column] = this.cursor ?? [0, 0];
      this.point(this.cursor ? [row + step[0], column + step[1]] : [0, 0]);
      if (this.glass.zoom > 1) this.follow();
    } else if (ZOOMS[event.key] !== undefined) this.look(ZOOMS[event.key]);
    else if (event.key === "Enter") this.plot();
    else return;
    event.preventDefault();
  }

  // ---- one element

  point([row, column]) {
    if (!this.planes || row < 0 || column < 0 || row >= this.height || column >= this.width) return;
    if (this.cursor?.[0] === row && this.cursor?.[1] === column) return;
    this.cursor = [row, column];
    this.draw();
    this.tell();
  }

  // No element is pointed at any more, and nothing that was asked about one is told.
  leave() {
    this.cursor = this.telling = undefined;
    this.say("");
  }

  elementAt() {
    const [row, column] = this.cursor;
    const at = [...this.at];
    at[this.rows] = this.origin[0] + row;
    at[this.columns] = this.origin[1] + column;
    return at;
  }

  // Nothing while other values are on their way: those shown are not of the place that is asked for.
  tell() {
    if (this.isStale) return;
    const [row, column] = this.cursor;
    const at = this.elementAt();
    const values = this.words.map((words) => words(row, column));
    const place = this.dims
      .map((dim, axis) => (this.inColour && axis === this.bands ? "" : `${dim} ${this.label(axis, at[axis])}`))
      .filter(Boolean);
    const words = `${values.join(", ")} at ${place.join(", ")}`;
    this.say(words);
    const telling = (this.telling = {});
    clearTimeout(this.later);
    this.later = setTimeout(() => telling === this.telling && this.tellSource(at, words, telling).catch(() => {}), ASK_MS);
  }

  // Nothing if other words were told meanwhile: the same element of another level has another value.
  async tellSource(at, words, telling) {
    const { state, source, offset, length } = await this.placeOf(at);
    if (telling !== this.telling || this.isStale) return;
    this.say(state === "range" ? `${words}; ${source}, bytes ${offset} to ${offset + length}` : `${words}; ${state}`);
  }

  async placeOf(at) {
    if (this.store.placeOf) return this.store.placeOf(this.path, at);
    const path = this.path.split("/").map(encodeURIComponent).join("/");
    const response = await fetch(`${this.place.dataset.places}/${path}?at=${at}`, { headers: { accept: "application/json" } });
    return response.json();
  }

  async plot() {
    if (this.cursor === undefined) return;
    const [axis, at] = [this.seriesAxis(), this.elementAt()];
    try {
      await this.askWhether(this.array.bytesOf([axis], Infinity), this.plotted);
      const series = await this.array.series(axis, at);
      const place = this.dims.filter((_, other) => other !== axis).map((dim) => `${dim} ${this.label(this.dims.indexOf(dim), at[this.dims.indexOf(dim)])}`);
      const title = `${this.path} along ${this.dims[axis]} at ${place.join(", ")}`;
      this.plotted.replaceChildren(plotted(series, (i) => this.label(axis, i), this.array.meaning, title));
      this.keep();
    } catch (error) {
      this.failed(error);
    }
  }

  keep() {
    const state = { rows: this.dims[this.rows], columns: this.dims[this.columns] };
    if (this.levels.length > 1) state.level = this.level;
    for (const axis of this.hiddenAxes()) state[`at${axis}`] = this.at[axis];
    for (const axis of [this.rows, this.columns]) if (this.windows[axis]) state[`from${axis}`] = this.windows[axis];
    if (this.inColour || (this.bands !== null && this.array.isByte)) state.rgb = this.inColour ? 1 : 0;
    if (!this.inColour && !this.array.meaning.flags) Object.assign(state, { colours: this.scale, low: this.low, high: this.high });
    if (!this.coasts) state.coasts = 0;
    if (this.series !== undefined) state.series = this.dims[this.series];
    writeState(state);
  }
}

function sizeInWords(n_bytes) {
  const power = Math.min(8, Math.floor(Math.log10(n_bytes) / 3));
  return `${Math.round(n_bytes / 1000 ** power)} ${["B", "kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"][power]}`;
}

const sight = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    sight.unobserve(target);
    preview(target).catch(() => { // its page says why
      target.hidden = true;
      target.dataset.ready = "failed";
    });
  }
});
for (const canvas of document.querySelectorAll(".preview")) sight.observe(canvas);

const place = document.getElementById("viewer");
if (place) {
  const viewer = new Viewer(place);
  viewer.start().catch((error) => {
    place.replaceChildren(element("p", { class: "problem", role: "alert" }, `This could not be read: ${error.message}`));
    place.dataset.ready = "failed";
  });
}
