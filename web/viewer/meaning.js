// What stored numbers mean: the CF conventions' packing, missing values, valid range and flags.
import { asFineAs, shortest, unitsInWords } from "./numbers.js";

function listed(value) {
  return [value ?? []].flat().map(Number);
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

function flagsOf(attributes, meant) {
  const values = listed(attributes.flag_values).map(meant);
  if (!values.length) return null;
  const words = String(attributes.flag_meanings ?? "").trim().split(/\s+/);
  return new Map(values.map((value, number) => [value, words[number] ?? String(value)]));
}

// Older files of netCDF say of signed integers that they are none, or the reverse: which are others, and
// by how much.
function signOf(attributes, dtype) {
  const [, unsigned, bits] = /^(u?)int(\d+)$/.exec(dtype) ?? [];
  const isOther = bits && attributes._Unsigned === (unsigned ? "false" : "true");
  if (!isOther) return { least: -Infinity, most: Infinity, apart: 0 };
  return { least: unsigned ? -Infinity : 0, most: unsigned ? 2 ** (bits - 1) - 1 : Infinity, apart: 2 ** bits };
}

export class Meaning {
  constructor(attributes, dtype) {
    this.dtype = dtype;
    Object.assign(this, signOf(attributes, dtype));
    const meant = (value) => (value < this.least ? value + this.apart : value > this.most ? value - this.apart : value);
    const isSingle = dtype === "float32";
    this.scale = listed(attributes.scale_factor)[0] ?? 1;
    this.offset = listed(attributes.add_offset)[0] ?? 0;
    const missing = [...fillOf(attributes._FillValue), ...listed(attributes.missing_value)].map(meant);
    this.missing = [...new Set(isSingle ? [...missing, ...missing.map(Math.fround)] : missing)];
    const inRange = (value) => (Number.isFinite(value) ? meant(isSingle ? Math.fround(value) : value) : value);
    [this.low, this.high] = validRange(attributes).map(inRange);
    this.flags = flagsOf(attributes, meant);
    this.isPacked = this.scale !== 1 || this.offset !== 0;
    this.units = unitsInWords(attributes.units);
  }

  // A stored number as people count it; NaN where there is none.
  of(stored) {
    let number = Number(stored);
    if (number < this.least) number += this.apart;
    else if (number > this.most) number -= this.apart;
    const { missing } = this;
    for (let i = 0; i < missing.length; i++) if (number === missing[i]) return NaN; // a set takes longer
    if (number < this.low || number > this.high) return NaN;
    return number * this.scale + this.offset;
  }

  // A stored number in words, with all digits that it has: those of 64 bits too.
  wordsOf(stored) {
    const value = this.of(stored);
    if (typeof stored !== "bigint" || this.isPacked || this.flags || Number.isNaN(value)) return this.words(value);
    const meant = !this.apart ? stored : this.least === 0 ? BigInt.asUintN(64, stored) : BigInt.asIntN(64, stored);
    return this.withUnits(String(meant));
  }

  words(value) {
    if (Number.isNaN(value)) return "no value";
    const flag = this.flags?.get(value);
    if (flag !== undefined) return `${value} (${flag})`;
    return this.withUnits(this.digits(value));
  }

  digits(value) {
    return this.isPacked && /int/.test(this.dtype) ? asFineAs(value, this.scale) : shortest(value, this.dtype);
  }

  withUnits(digits) {
    return /^[°%]/.test(this.units) ? digits + this.units : [digits, this.units].filter(Boolean).join(" ");
  }
}
