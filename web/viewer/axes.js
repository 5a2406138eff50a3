// Axes around a picture: round values of its coordinates, or numbers of elements, and a scale bar.
import { axisBottom, axisLeft } from "d3-axis";
import { scaleLinear } from "d3-scale";
import { select } from "d3-selection";
import { Coordinate } from "./coordinate.js";
import { drawn } from "./controls.js";
import { turned } from "./map/earth.js";
import { placeOf, valueAt } from "./places.js";

const APART = { across: 90, acrossTimes: 110, up: 60 };
const BAR = 120; // of the scale bar, at most
const LENGTHS = [[1e3, "km"], [1, "m"], [1e-3, "mm"], [1e-6, "µm"], [1e-9, "nm"]];

// One axis of a picture: `coordinate` may be null, `origin` is the number of its first element.
export class AxisOfPicture {
  constructor(coordinate, name, origin, n) {
    Object.assign(this, { coordinate, origin, n });
    this.heading = coordinate?.heading() ?? name;
    const values = coordinate?.values.subarray(origin, origin + n);
    this.values = coordinate?.isOrdered && n > 1 ? values : null;
  }

  // Places of round values between two places, each with its words.
  ticks(first, last, n) {
    if (this.values) {
      const ends = [first, last].map((place) => valueAt(this.values, place));
      return this.coordinate.ticks(Math.min(...ends), Math.max(...ends), n).map(([value, words]) => [placeOf(this.values, value), words]);
    }
    const scale = scaleLinear().domain([first - 0.5 + this.origin, last - 0.5 + this.origin].sort((a, b) => a - b));
    return scale.ticks(n).filter(Number.isInteger).map((number) => [number - this.origin + 0.5, this.coordinate?.label(number) ?? String(number)]);
  }
}

// Meridians or parallels along a flat map.
export class AxisOfMap {
  constructor(units, heading) {
    this.degrees = new Coordinate({ units }, "float64", heading);
    this.heading = heading;
  }

  ticks(first, last, n) {
    const found = this.degrees.ticks(Math.min(first, last), Math.max(first, last), n);
    return found.map(([value]) => [value, this.degrees.words(turned(value))]);
  }
}

// `aside` is how far to the left the heading of the upright axis goes; globes have no axes.
export function drawAxes(svg, frame, across, up, aside) {
  svg.replaceChildren();
  if (!across || !up) return;
  const { width, height } = frame;
  const [left, top] = frame.toPlaces(0, 0);
  const [right, bottom] = frame.toPlaces(width, height);
  const apart = across.coordinate?.time ? APART.acrossTimes : APART.across;
  const low = across.ticks(left, right, Math.max(3, Math.floor(width / apart))).map(([place, words]) => [frame.toCanvas(place, 0)[0], words]);
  const side = up.ticks(top, bottom, Math.max(3, Math.floor(height / APART.up))).map(([place, words]) => [frame.toCanvas(0, place)[1], words]);
  draw(svg, axisBottom, low, width, `translate(0, ${height})`);
  draw(svg, axisLeft, side, height, "");
  svg.append(drawn("text", { x: width / 2, y: height + 34, "text-anchor": "middle", class: "heading" }, across.heading));
  svg.append(drawn("text", { transform: `translate(${-aside}, ${height / 2}) rotate(-90)`, "text-anchor": "middle", class: "heading" }, up.heading));
  const step = across.coordinate?.step();
  if (step?.kind === "metres" && up.coordinate?.step()?.kind === "metres") drawBar(svg, frame, step.size);
}

function draw(svg, axis, ticks, length, transform) {
  const scale = Object.assign((number) => ticks[number][0], { copy: () => scale, range: () => [0, length], domain: () => [0, ticks.length] });
  const group = drawn("g", transform ? { transform } : {});
  svg.append(group);
  select(group).call(axis(scale).tickValues(ticks.map((_, number) => number)).tickFormat((number) => ticks[number][1]).tickSizeOuter(0));
}

// A bar of a round length in metres; `size` is that of an element.
function drawBar(svg, frame, size) {
  const metres = (size * frame.columns) / (frame.width * frame.glass.zoom); // of a pixel
  const most = metres * Math.min(BAR, frame.width / 3);
  const power = 10 ** Math.floor(Math.log10(most));
  const length = [5, 2, 1].map((each) => each * power).find((each) => each <= most);
  const [unit, name] = LENGTHS.find(([each]) => length >= each) ?? LENGTHS.at(-1);
  const [x, y, wide] = [10, frame.height - 10, length / metres];
  const bar = drawn("g", { class: "bar-of-length" });
  bar.append(drawn("rect", { x: x - 5, y: y - 22, width: wide + 10, height: 28, rx: 3 }));
  bar.append(drawn("path", { d: `M${x} ${y - 5}V${y}H${x + wide}V${y - 5}` }));
  bar.append(drawn("text", { x: x + wide / 2, y: y - 8, "text-anchor": "middle" }, `${Number((length / unit).toPrecision(1))} ${name}`));
  svg.append(bar);
}
