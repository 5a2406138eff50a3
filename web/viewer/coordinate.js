// A coordinate: its labels in words, what kind of axis it is, and which way it runs.
import { scaleLinear } from "d3-scale";
import { TimeAxis } from "./calendars.js";
import { shortest, unitsInWords } from "./numbers.js";

const METRES = { m: 1, meter: 1, metre: 1, meters: 1, metres: 1, km: 1e3, mm: 1e-3, micrometer: 1e-6, micrometre: 1e-6, um: 1e-6, µm: 1e-6, nm: 1e-9, nanometer: 1e-9, nanometre: 1e-9 };
const PRESSURE = /^(pa|hpa|kpa|mbar|millibars?|bar|dbar|decibars?)$/i;

const DEGREES = [360, 180, 120, 90, 60, 45, 30, 20, 15, 10, 5, 2, 1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001]; // between ticks on earth

export function multiples(low, high, step) {
  const first = Math.ceil(low / step);
  return Array.from({ length: Math.max(0, Math.floor(high / step) - first + 1) }, (_, i) => Number(((first + i) * step).toPrecision(9)));
}

export class Coordinate {
  constructor(attributes, dtype, name) {
    this.dtype = dtype;
    this.name = name;
    this.title = typeof attributes.long_name === "string" && attributes.long_name ? attributes.long_name : name;
    this.units = typeof attributes.units === "string" ? attributes.units.trim() : "";
    const standard = String(attributes.standard_name ?? "");
    const axis = String(attributes.axis ?? "").toUpperCase();
    const isOther = /rad/i.test(this.units); // not degrees
    this.isLatitude = /^degrees?_?(n|north)$/i.test(this.units) || (standard === "latitude" && !isOther);
    this.isLongitude = /^degrees?_?(e|east)$/i.test(this.units) || (standard === "longitude" && !isOther);
    this.isVertical = this.isLatitude || ["projection_y_coordinate", "grid_latitude"].includes(standard) || axis === "Y";
    this.isHorizontal = this.isLongitude || ["projection_x_coordinate", "grid_longitude"].includes(standard) || axis === "X";
    this.time = TimeAxis.of(this.units, attributes.calendar ?? "standard");
    const isHeight = axis === "Z" || /^(height|altitude)/.test(standard) || attributes.positive === "up";
    const isDown = attributes.positive === "down" || /^depth/.test(standard) || PRESSURE.test(this.units);
    // What is drawn further up: the greater values (1), the smaller ones (-1), or those that come first (0).
    this.up = this.isVertical ? 1 : isDown ? -1 : isHeight ? 1 : 0;
  }

  take(values) {
    this.values = values;
    this.ascends = values.length < 2 || values[0] < values.at(-1);
    this.isOrdered = values.every((value, i) => Number.isFinite(value) && (i === 0 || value > values[i - 1] === this.ascends && value !== values[i - 1]));
  }

  // What one step is worth in metres or degrees, to compare with another coordinate; null if unknown.
  step() {
    const { values } = this;
    if (values.length < 2 || !this.isOrdered) return null;
    const size = Math.abs(values.at(-1) - values[0]) / (values.length - 1);
    if (this.isLatitude || this.isLongitude || /^(degrees?|deg)$/i.test(this.units)) return { kind: "degrees", size };
    const metres = METRES[this.units.toLowerCase()];
    if (metres) return { kind: "metres", size: size * metres };
    return this.units && !this.time ? { kind: this.units, size } : null;
  }

  label(index) {
    return this.words(this.values[index]);
  }

  words(value) {
    if (this.time) return this.time.words(value);
    const digits = shortest(Math.abs(value), this.dtype === "float64" ? "coordinate" : this.dtype);
    if (this.isLatitude) return `${digits}°${value < 0 ? " S" : value > 0 ? " N" : ""}`;
    if (this.isLongitude) return `${digits}°${Math.abs(value) === 180 ? "" : value < 0 ? " W" : value > 0 ? " E" : ""}`;
    const signed = value < 0 ? `-${digits}` : digits;
    const units = unitsInWords(this.units);
    return /^[°%]/.test(units) ? signed + units : [signed, units].filter(Boolean).join(" ");
  }

  // Round values between two, about so many, each with its words; units are said once, beside the axis.
  ticks(low, high, n) {
    if (this.time) return this.time.ticks(Math.min(low, high), Math.max(low, high), n);
    const isOnEarth = this.isLatitude || this.isLongitude;
    const step = isOnEarth && DEGREES.findLast((each) => (high - low) / each <= n);
    if (step) return multiples(low, high, step).map((value) => [value, this.words(value)]);
    const scale = scaleLinear().domain([low, high]);
    const format = scale.tickFormat(n);
    return scale.ticks(n).map((value) => [value, isOnEarth ? this.words(value) : format(value)]);
  }

  heading() {
    const units = this.isLatitude || this.isLongitude || this.time ? "" : unitsInWords(this.units);
    return units ? `${this.title} (${units})` : this.title;
  }
}

// Numbers of elements, where a look leaves out some and nothing labels them.
export class Numbered extends Coordinate {
  constructor(name, first, step, n) {
    super({}, "int32", name);
    this.apart = step;
    this.take(Float64Array.from({ length: n }, (_, i) => first + i * step));
    this.reading = Promise.resolve();
  }

  step() {
    return { kind: "elements", size: this.apart };
  }

  words(value) {
    return String(value);
  }
}
