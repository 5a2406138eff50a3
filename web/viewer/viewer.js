// The viewer of an array: reads what is asked for, and has it drawn and told.
import { askWhether } from "./asking.js";
import { AxisOfMap, AxisOfPicture } from "./axes.js";
import { drawCoasts } from "./coast.js";
import { coloured, fitted } from "./colouring.js";
import { fitParts } from "./composite.js";
import { button, element } from "./controls.js";
import { Frame } from "./frame.js";
import { WHOLE } from "./glass.js";
import { notes, shownAsList } from "./lists.js";
import { Loading } from "./loading.js";
import { MapFrame } from "./map/frame.js";
import { onEarth } from "./map/earth.js";
import { placeOnEarth } from "./map/reading.js";
import { suitedView } from "./map/views.js";
import { bytesInWords } from "./numbers.js";
import { Opened } from "./opened.js";
import { panel, zooms } from "./panel.js";
import { Picture } from "./picture.js";
import { PublishedStore } from "./published.js";
import { alongOf, histogram, seriesPlot } from "./series.js";
import { MOST_ALONG, readState, Shown, writeState } from "./shown.js";
import { saving } from "./saving.js";
import { Store } from "./store.js";
import { askedPlace, Telling } from "./telling.js";

const [MOST_AHEAD, AHEAD_BYTES] = [3, 32e6]; // steps that are asked for ahead

export class Viewer {
  constructor(place) {
    this.place = place;
    this.levels = JSON.parse(place.dataset.levels);
    this.told = element("p", { role: "status", id: "viewer-told" });
    this.pictures = 0;
    const { view, chunks, documents, native } = place.dataset;
    this.store = chunks ? new PublishedStore(chunks) : new Store(view, JSON.parse(documents), JSON.parse(native));
    this.loading = new Loading((signal) => this.read(signal), (found) => this.show(found), (error) => this.failed(error));
    this.telling = new Telling((words) => this.say(words), (at) => this.placeOf(at));
  }

  async start() {
    const asked = readState();
    const level = asked.level in this.levels ? Number(asked.level) : this.levels.length > 1 ? this.wholeLevel() : 0;
    this.opened = await Opened.level(this.store, this.levels[level]);
    if (await shownAsList(this.place, this.told, this.opened)) return;
    this.shown = new Shown(this.opened, asked, level);
    await askWhether(this.opened.array.bytesOf([this.shown.rows, this.shown.columns], MOST_ALONG), this.place);
    await Promise.all([this.opened.labels.then(() => this.findEarth()), this.readPlanes().catch(() => {})]); // load() tells what failed
    this.build();
    await this.load();
    if (this.shown.isPlotted) await this.plot();
  }

  // The finest level that is shown as a whole; of looks the quickest, which is the last.
  wholeLevel() {
    const found = this.levels.findIndex(({ shape, steps }) => !steps && shape.every((length) => length <= MOST_ALONG));
    return found < 0 ? this.levels.length - 1 : found;
  }

  say(words) {
    this.told.textContent = words;
  }

  // `act` is what is tried again.
  failed(error, act = () => this.load()) {
    this.telling.stop();
    const again = button("Try again", act);
    this.told.replaceChildren(`This could not be read: ${error.message} `, again);
    this.place.dataset.ready = "failed";
  }

  // ---- what surrounds the picture

  build() {
    const label = `Picture of ${this.opened.path}: arrow keys move, Enter plots the series through a point`;
    this.picture = new Picture(label, {
      told: () => {
        this.shown.point = this.elementAt();
        this.tell();
      },
      chosen: () => this.plot(),
      viewed: () => {
        this.shown.glass = this.picture.glass;
        if (this.picture.frame.isGlobe) this.shown.centre = this.picture.frame.centre;
        this.keep();
      },
    });
    this.picture.glass = this.shown.glass;
    this.heading = element("div", { class: "title" }, element("p", {}, this.opened.heading), zooms(this));
    this.controls = element("div", { class: "panel" });
    this.legend = element("div", { id: "viewer-legend" });
    this.counts = element("div", { class: "counts" });
    this.plotted = element("div", { id: "viewer-series" });
    const toggled = () => {
      this.shown.isCounted = often.open;
      this.count();
      this.keep();
    };
    const often = element("details", { open: this.shown.isCounted, ontoggle: toggled }, element("summary", {}, "How often values are"), this.counts);
    this.histogram = often;
    this.saving = saving(this);
    this.place.replaceChildren(
      ...notes(this.opened), this.heading, this.picture.place, this.told, this.legend, this.controls, this.plotted, often, this.saving.place,
    );
    panel(this);
  }

  // As which view it is shown: as asked for, else as suits it.
  view() {
    if (!this.earth) return "stored";
    return this.shown.view ?? (this.earth.isPlain ? "stored" : suitedView(this.opened.earth, this.earth.extent));
  }

  isMap() {
    const { coordinates } = this.opened;
    if (this.view() !== "stored") return true;
    return Boolean(coordinates[this.shown.rows]?.isLatitude && coordinates[this.shown.columns]?.isLongitude);
  }

  // Other planes of the same place are shown.
  changedPlanes() {
    panel(this);
    this.load();
  }

  changedAxes() {
    this.shown.low = this.shown.high = undefined;
    this.shown.glass = this.picture.glass = WHOLE;
    this.shown.view = this.shown.centre = undefined;
    this.leave();
    panel(this);
    this.load();
  }

  async changeLevel(level) {
    try {
      this.opened = await Opened.level(this.store, this.levels[level]);
      await this.opened.labels;
      this.shown.level = level;
      this.shown.at = this.shown.at.map((at, axis) => Math.min(at, this.opened.shape[axis] - 1));
      this.shown.windows = {};
      this.leave();
      panel(this);
      await this.load();
    } catch (error) {
      this.failed(error);
    }
  }

  // ---- values

  load() {
    this.isStale = true;
    return this.loading.wish();
  }

  windows() {
    const { rows, columns } = this.shown;
    return Object.fromEntries([rows, columns].map((axis) => [axis, this.shown.window(axis, this.opened.shape[axis])]));
  }

  readPlanes(signal, at = this.shown.at) {
    const { rows, columns, parts, composite } = this.shown;
    const one = (place) => this.opened.array.plane(rows, columns, place, this.windows(), signal);
    return Promise.all(parts ? parts.map((part) => one(at.with(composite.axis, part.at))) : [one(at)]);
  }

  // Where the plane is on earth, read once for all planes of the same place; that it cannot be read is
  // no reason to show nothing.
  async findEarth() {
    const { rows, columns } = this.shown;
    const windows = this.windows();
    const key = JSON.stringify([this.opened.path, rows, columns, windows]);
    if (key === this.earthKey) return;
    this.earth = await placeOnEarth(this.store, this.opened, { rows, columns }, windows).catch((error) => {
      this.opened.problems.push(`Where it is on earth could not be read: ${error.message}`);
      return null;
    });
    this.earthKey = key;
  }

  // Asks for the planes that come next, where a slider moves on as it just did, while nothing else is asked
  // for; that one fails is told when it is shown.
  readAhead() {
    const { at, rows, columns } = this.shown;
    const steps = at.map((place, axis) => place - (this.lastAt?.[axis] ?? place));
    this.lastAt = [...at];
    if (!steps.some(Boolean)) return;
    this.ahead?.abort();
    this.ahead = new AbortController();
    const n_bytes = this.opened.array.bytesOf([rows, columns], MOST_ALONG) * (this.parts?.length ?? 1);
    const most = Math.max(1, Math.min(MOST_AHEAD, Math.floor(AHEAD_BYTES / n_bytes)));
    for (let further = 1; further <= most; further++) {
      const next = at.map((place, axis) => place + further * steps[axis]);
      if (next.some((place, axis) => place < 0 || place >= this.opened.shape[axis])) return;
      this.readPlanes(this.ahead.signal, next).catch(() => {});
    }
  }

  async read(signal) {
    const { rows, columns, parts } = this.shown;
    const windows = this.windows();
    const [planes] = await Promise.all([this.readPlanes(signal), this.findEarth()]);
    return { rows, columns, parts, windows, planes };
  }

  show({ rows, columns, parts, windows, planes }) {
    if (rows !== this.shown.rows || columns !== this.shown.columns) return;
    const [{ height, width }] = planes;
    this.planes = planes.map(({ values }) => values);
    this.words = planes.map(({ words }) => words);
    if (this.place.dataset.ready === "failed") this.say("");
    Object.assign(this, { parts, height, width, origin: [windows[rows][0], windows[columns][0]] });
    this.isStale = this.loading.isBehind;
    this.arrange();
    this.repaint();
    this.pictures += 1;
    this.place.dataset.ready = String(this.pictures);
    if (this.picture.cursor) this.tell();
    if (!this.isStale) this.readAhead();
  }

  // Where the elements of the plane go, and what is around them.
  arrange() {
    const { rows, columns } = this.shown;
    const { coordinates, dims } = this.opened;
    const [up, across] = [coordinates[rows], coordinates[columns]];
    const [row, column] = this.origin;
    const point = this.shown.point;
    const within = point && point[rows] >= row && point[rows] < row + this.height && point[columns] >= column && point[columns] < column + this.width;
    this.picture.cursor = within ? [point[rows] - row, point[columns] - column] : undefined;
    this.picture.glass = this.shown.glass;
    const view = this.view();
    if (view !== "stored") {
      const axes = view === "flat" ? { across: new AxisOfMap("degrees_east", "longitude"), up: new AxisOfMap("degrees_north", "latitude") } : {};
      return this.picture.show(this.mapFrame(view), axes);
    }
    const isSouthFirst = this.earth && !this.earth.isPlain ? this.earth.isSouthFirst : undefined;
    const frame = new Frame({ rows: this.height, columns: this.width, up, across, isStretched: this.shown.isStretched, isSouthFirst });
    const overlay = this.shown.coasts && this.isMap() ? (context) => this.drawCoasts(context, up, across) : undefined;
    this.picture.show(frame, {
      across: new AxisOfPicture(across, dims[columns], column, this.width),
      up: new AxisOfPicture(up, dims[rows], row, this.height),
      overlay,
    });
  }

  // Made anew only if it is another one: sliders change values, not places.
  mapFrame(view) {
    const { centre, coasts } = this.shown;
    const last = this.picture.frame;
    if (last?.earth === this.earth && last.name === view && (centre || !last.isGlobe)) return Object.assign(last, { hasCoasts: coasts });
    return new MapFrame({ earth: this.earth, view, centre, hasCoasts: coasts });
  }

  drawCoasts(context, up, across) {
    const [row, column] = this.origin;
    const { frame } = this.picture;
    context.save();
    context.beginPath();
    context.rect(0, 0, this.width, this.height);
    context.clip();
    const pixel = this.width / (frame.width * frame.glass.zoom);
    drawCoasts(context, across.values.subarray(column, column + this.width), up.values.subarray(row, row + this.height), pixel);
    context.restore();
  }

  redraw(change) {
    Object.assign(this.shown, change);
    this.arrange();
    this.picture.draw();
    panel(this);
    this.keep();
  }

  // ---- colours

  repaint(change = {}) {
    Object.assign(this.shown, change);
    if (!this.planes) return;
    const fit = this.fit();
    const { pixels, legend } = coloured(this.shown, this.opened, this.planes, this.parts, this.legend.clientWidth);
    this.legend.replaceChildren(...legend);
    this.picture.paint(pixels, this.width, this.height);
    this.picture.draw();
    if (fit || Object.keys(change).length) panel(this);
    this.count();
    this.keep();
  }

  // Gives limits to what has none; whether it did.
  fit() {
    if (this.parts) return fitParts(this.parts, this.planes);
    const fit = this.opened.meaning.flags ? null : fitted(this.shown, this.opened, this.planes[0]);
    Object.assign(this.shown, fit);
    return fit !== null;
  }

  count() {
    if (!this.histogram?.open || !this.planes) return;
    const made = histogram(this.planes[0], this.opened.heading);
    this.counts.replaceChildren(made ?? "All values are the same, or there are none.");
  }

  // ---- one element

  leave() {
    this.picture.leave();
    this.telling.stop();
    this.shown.point = undefined;
    this.say("");
  }

  elementAt() {
    const [row, column] = this.picture.cursor;
    const at = [...this.shown.at];
    at[this.shown.rows] = this.origin[0] + row;
    at[this.shown.columns] = this.origin[1] + column;
    return at;
  }

  // Nothing while other values are on their way: those shown are not of the place that is asked for.
  tell() {
    if (this.isStale) return;
    const { names } = this.opened;
    const at = this.elementAt();
    const values = this.words.map((words, number) => (this.parts && this.shown.composite.isOfChannels ? `${this.parts[number].label} ` : "") + words(...this.picture.cursor));
    const place = names
      .map((dim, axis) => (this.parts && axis === this.shown.composite.axis ? "" : `${dim} ${this.opened.label(axis, at[axis])}`))
      .filter(Boolean);
    if (this.earth && !(this.opened.coordinates[this.shown.rows]?.isLatitude)) place.push(onEarth(...this.earth.at(this.picture.cursor[1] + 0.5, this.picture.cursor[0] + 0.5)));
    this.telling.tell(`${values.join(", ")} at ${place.join(", ")}`, at);
  }

  placeOf(at) {
    const { path, array } = this.opened;
    return this.store.placeOf ? this.store.placeOf(path, at) : askedPlace(this.place.dataset.places, path, array.stored(at));
  }

  plotAlong(axis) {
    Object.assign(this.shown, { series: axis, span: undefined });
    return this.plot();
  }

  async plot() {
    if (!this.picture.cursor) return;
    const { array, coordinates, names, meaning, shape } = this.opened;
    const [axis, at] = [this.shown.seriesAxis(), this.elementAt()];
    this.plotting?.abort();
    const { signal } = (this.plotting = new AbortController());
    try {
      const travelling = await array.travelling(axis, at);
      if (!array.isServed(axis)) await askWhether(array.bytesOf([axis], Infinity), this.plotted, travelling);
      const told = (share) => !signal.aborted && this.plotted.replaceChildren(element("p", { role: "status" }, `Reading … ${Math.floor(100 * share)} %`));
      const series = await array.series(axis, at, told, signal);
      if (signal.aborted) return;
      const place = names.map((dim, other) => (other === axis ? "" : `${dim} ${this.opened.label(other, at[other])}`)).filter(Boolean);
      const cost = travelling === undefined ? "" : ` (${bytesInWords(travelling)} of the files)`;
      const title = `${this.opened.title} along ${names[axis]} at ${place.join(", ")}${cost}`;
      const looked = (span) => {
        this.shown.span = span;
        this.keep();
      };
      const span = [this.shown.span, looked];
      this.plotted.replaceChildren(seriesPlot(series, alongOf(coordinates[axis], names[axis], shape[axis]), meaning, title, span));
      Object.assign(this.shown, { point: at, isPlotted: true });
      this.keep();
      if (this.place.dataset.ready === "failed") this.recovered();
    } catch (error) {
      if (signal.aborted) return;
      this.plotted.replaceChildren();
      this.failed(error, () => this.plot());
    }
  }

  // What had failed is there now.
  recovered() {
    this.say("");
    this.place.dataset.ready = String(this.pictures);
  }

  // Another one takes its place: what is still on its way says nothing any more.
  end() {
    this.isOver = true;
  }

  keep() {
    if (this.isOver) return;
    this.saving.renew();
    writeState(this.shown.state(this.opened, this.levels.length > 1, Boolean(this.opened.meaning.flags)));
  }
}
