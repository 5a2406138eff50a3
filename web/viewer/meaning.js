// What stored numbers mean: the CF conventions' packing, missing values, valid range and flags.
import { asFineAs, shortest, unitsInWords } from "./numbers.js";

function listed(value) {
  return value === undefined ? [] : [value].flat().map(Number);
}

// xarray writes the _FillValue of floats as the base64 of eight bytes.
function fillOf(value) {
  if (typeof value !== "string") return listed(value);
  if (["NaN", "Infinity", "-Infinity"].includes(value)) return [Number(value)];
  const bytes = Uint8Array.from(atob(value), (character) => character.charCodeAt(0));
  return bytes.length === 8 ? [new DataView(bytes.buffer).getFloat64(0, true)] : [];
}

function validRange(attributes) {
  const [low, high] = listed(attributes.valid_range);
  return [
    low ?? listed(attributes.valid_min)[0] ?? -Infinity,
    high ?? listed(attributes.valid_max)[0] ?? Infinity,
  ];
}

function flagsOf(attributes) {
  const values = listed(attributes.flag_values);
  if (!values.length) return null;
  const words = String(attributes.flag_meanings ?? "").trim().split(/\s+/);
  return new Map(values.map((value, number) => [value, words[number] ?? String(value)]));
}

// Netcdf's older files say of signed bytes that they are none: how much a negative one lacks.
function lackOf(attributes, dtype) {
  const bits = /^int(8|16|32)$/.exec(dtype);
  return bits && String(attributes._Unsigned).toLowerCase() === "true" ? 2 ** Number(bits[1]) : 0;
}

export class Meaning {
  constructor(attributes, dtype) {
    this.dtype = dtype;
    this.lack = lackOf(attributes, dtype);
    const unsigned = (value) => (value < 0 ? value + this.lack : value);
    this.scale = listed(attributes.scale_factor)[0] ?? 1;
    this.offset = listed(attributes.add_offset)[0] ?? 0;
    const missing = [...fillOf(attributes._FillValue), ...listed(attributes.missing_value)].map(unsigned);
    this.missing = [...new Set(dtype === "float32" ? [...missing, ...missing.map(Math.fround)] : missing)];
    [this.low, this.high] = validRange(attributes).map((value) => (Number.isFinite(value) ? unsigned(value) : value));
    this.flags = flagsOf(attributes);
    this.isPacked = this.scale !== 1 || this.offset !== 0;
    this.units = unitsInWords(attributes.units);
  }

  // A stored number as people count it; NaN where there is none.
  of(stored) {
    let number = Number(stored);
    if (number < 0) number += this.lack;
    const { missing } = this;
    for (let i = 0; i < missing.length; i++) if (number === missing[i]) return NaN; // a set takes longer
    if (number < this.low || number > this.high) return NaN;
    return number * this.scale + this.offset;
  }

  // A stored number in words, with all digits that it has: those of 64 bits too.
  wordsOf(stored) {
    const value = this.of(stored);
    if (typeof stored !== "bigint" || this.isPacked || this.flags || Number.isNaN(value)) return this.words(value);
    return this.withUnits(String(stored));
  }

  words(value) {
    if (Number.isNaN(value)) return "no value";
    const flag = this.flags?.get(value);
    if (flag !== undefined) return `${value} (${flag})`;
    return this.withUnits(this.digits(value));
  }

  digits(value) {
    return this.isPacked ? asFineAs(value, this.scale) : shortest(value, this.dtype);
  }

  withUnits(digits) {
    return /^[°%]/.test(this.units) ? digits + this.units : [digits, this.units].filter(Boolean).join(" ");
  }
}
