// The picture: a canvas that is pointed at, zoomed and dragged, with axes around it.
import { drawAxes } from "./axes.js";
import { drawn, element } from "./controls.js";
import { held, moved, nearer, WHOLE } from "./glass.js";

const ZOOMS = { "+": 2, "=": 2, "-": 0.5, 0: 0 };
const MARGINS = { left: 78, right: 26, top: 8, bottom: 42 };
const ROUND = { left: 1, right: 1, top: 8, bottom: 8 }; // of pictures without axes
const MOST_HEIGHT = 0.57; // of the window: title, axis and colour bar are in sight too
const [LEAST, MOST] = [220, 640];

export class Picture {
  // `told` is called with the element under the pointer, `chosen` with one that was clicked,
  // `viewed` when what is seen of the picture changed.
  constructor(label, { told, chosen, viewed }) {
    Object.assign(this, { told, chosen, viewed });
    this.pixels = document.createElement("canvas");
    this.glass = WHOLE;
    this.pointers = new Map();
    this.canvas = element(
      "canvas",
      {
        id: "viewer-canvas", tabindex: 0, role: "img", "aria-label": label, "aria-describedby": "viewer-told",
        onkeydown: (event) => this.key(event),
        onpointerdown: (event) => this.down(event),
        onpointermove: (event) => this.move(event),
        onpointerup: (event) => this.pointers.delete(event.pointerId),
        onpointercancel: (event) => this.pointers.delete(event.pointerId),
        onclick: (event) => this.click(event),
      },
      "A picture of values.",
    );
    this.canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.svg = drawn("svg", { class: "axes", "aria-hidden": "true" });
    this.place = element("div", { class: "picture" }, this.canvas, this.svg);
    new ResizeObserver(() => this.draw()).observe(this.place);
  }

  // Where elements go, the axes around them, and what is drawn over them, as coasts.
  show(frame, { across, up, overlay }) {
    Object.assign(this, { frame, across, up, overlay });
  }

  paint(pixels, width, height) {
    this.colours = pixels;
    Object.assign(this.pixels, { width, height });
    const image = new ImageData(new Uint8ClampedArray(pixels.buffer), width, height);
    this.pixels.getContext("2d").putImageData(image, 0, 0);
  }

  draw() {
    const { frame, canvas, place } = this;
    if (!frame || !this.colours || !place.clientWidth) return;
    const isNarrow = place.clientWidth < 480;
    const margins = !this.up ? ROUND : isNarrow ? { ...MARGINS, left: 60, right: 14 } : MARGINS;
    frame.fit({ width: place.clientWidth - margins.left - margins.right, height: Math.min(MOST, Math.max(LEAST, innerHeight * MOST_HEIGHT)) });
    frame.glass = this.glass;
    const left = this.up ? margins.left : margins.left + (place.clientWidth - frame.width) / 2;
    const ratio = devicePixelRatio;
    Object.assign(canvas.style, { width: `${frame.width}px`, height: `${frame.height}px`, left: `${left}px`, top: `${margins.top}px` });
    place.style.height = `${frame.height + margins.top + margins.bottom}px`;
    canvas.width = Math.round(frame.width * ratio);
    canvas.height = Math.round(frame.height * ratio);
    canvas.classList.toggle("closer", this.glass.zoom > 1 || Boolean(frame.isGlobe));
    const context = canvas.getContext("2d");
    frame.paint(context, ratio, this.pixels, this.colours);
    this.overlay?.(context, ratio);
    this.drawCursor(context, ratio);
    Object.assign(this.svg.style, { left: `${left}px`, top: `${margins.top}px` });
    this.svg.setAttribute("viewBox", `0 0 ${frame.width} ${frame.height}`);
    Object.assign(this.svg.style, { width: `${frame.width}px`, height: `${frame.height}px` });
    drawAxes(this.svg, frame, this.across, this.up, margins.left - 14);
  }

  drawCursor(context, ratio) {
    if (!this.cursor) return;
    const corners = this.frame.outlineOf(this.cursor);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    for (const [style, width] of [["#ffffff", 3], ["#e0007a", 1.5]]) {
      context.beginPath();
      for (const [x, y] of corners) context.lineTo(x, y);
      context.closePath();
      Object.assign(context, { strokeStyle: style, lineWidth: width });
      context.stroke();
    }
  }

  // ---- looking closer

  look(glass) {
    this.glass = held(glass);
    this.draw();
    this.viewed();
  }

  zoom(factor) {
    this.look(nearer(this.glass, factor));
  }

  wheel(event) {
    if (!this.frame || (!event.ctrlKey && document.activeElement !== this.canvas)) return; // the page scrolls
    event.preventDefault();
    const { width, height } = this.frame;
    this.look(nearer(this.glass, event.deltaY < 0 ? 1.25 : 0.8, event.offsetX / width, event.offsetY / height));
  }

  down(event) {
    this.pointers.set(event.pointerId, [event.clientX, event.clientY]);
    this.wasDragged = false;
  }

  move(event) {
    const before = this.pointers.get(event.pointerId);
    const now = [event.clientX, event.clientY];
    if (!before || !event.buttons) return this.point(this.frame?.elementAt(event.offsetX, event.offsetY));
    const [x, y] = [now[0] - before[0], now[1] - before[1]];
    const { width, height } = this.frame;
    if (this.pointers.size === 2) {
      const [other] = [...this.pointers].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
      const apart = (at) => Math.hypot(at[0] - other[0], at[1] - other[1]);
      const box = this.canvas.getBoundingClientRect();
      const middle = [(now[0] + other[0]) / 2 - box.left, (now[1] + other[1]) / 2 - box.top];
      this.look(nearer(moved(this.glass, x / 2 / width, y / 2 / height), apart(now) / apart(before), middle[0] / width, middle[1] / height));
      this.wasDragged = true;
    } else if (this.frame.isGlobe) {
      this.wasDragged ||= Math.hypot(x, y) > 2;
      this.frame.turn(x, y);
      this.look(this.glass);
    } else if (this.glass.zoom > 1) {
      this.wasDragged ||= Math.hypot(x, y) > 2;
      this.look(moved(this.glass, x / width, y / height));
    }
    this.pointers.set(event.pointerId, now);
  }

  // Moves what is seen to where the cursor is.
  follow() {
    const corners = this.frame.outlineOf(this.cursor);
    const [width, height] = [this.frame.width, this.frame.height];
    if (!corners.length) return;
    const over = (values, length) => Math.min(0, ...values) || Math.max(0, Math.max(...values) - length);
    const [x, y] = [over(corners.map(([each]) => each), width), over(corners.map(([, each]) => each), height)];
    if (x || y) this.look(moved(this.glass, -x / width, -y / height));
  }

  // ---- one element

  click(event) {
    if (this.wasDragged || !this.frame) return;
    const found = this.frame.elementAt(event.offsetX, event.offsetY);
    if (!found) return;
    this.point(found);
    this.chosen();
  }

  key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey || !this.frame) return;
    if (event.key.startsWith("Arrow")) {
      this.point(this.cursor ? this.frame.next(this.cursor, event.key) : this.frame.first);
      if (this.cursor && this.glass.zoom > 1) this.follow();
    } else if (ZOOMS[event.key] !== undefined) this.zoom(ZOOMS[event.key]);
    else if (event.key === "Enter") this.chosen();
    else return;
    event.preventDefault();
  }

  point(found) {
    if (!found || (this.cursor?.[0] === found[0] && this.cursor?.[1] === found[1])) return;
    this.cursor = found;
    this.draw();
    this.told();
  }

  leave() {
    this.cursor = undefined;
  }
}
