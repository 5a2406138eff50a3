// What stored numbers mean: the CF conventions' packing, missing values, valid range and flags.

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
  const words = String(attributes.flag_meanings ?? "").split(/\s+/);
  return new Map(values.map((value, number) => [value, words[number] ?? String(value)]));
}

export class Meaning {
  constructor(attributes, dtype) {
    this.isSingle = dtype === "float32";
    this.scale = listed(attributes.scale_factor)[0] ?? 1;
    this.offset = listed(attributes.add_offset)[0] ?? 0;
    this.missing = [...new Set([...fillOf(attributes._FillValue), ...listed(attributes.missing_value)])];
    [this.low, this.high] = validRange(attributes);
    this.flags = flagsOf(attributes);
    this.isPacked = this.scale !== 1 || this.offset !== 0;
    this.units = typeof attributes.units === "string" ? attributes.units : "";
  }

  // A stored number as people count it; NaN where there is none.
  of(stored) {
    const number = Number(stored);
    const { missing } = this;
    for (let i = 0; i < missing.length; i++) if (number === missing[i]) return NaN; // a set takes longer
    if (number < this.low || number > this.high) return NaN;
    return number * this.scale + this.offset;
  }

  // A stored number in words, with all digits that it has: those of 64 bits too.
  wordsOf(stored) {
    const value = this.of(stored);
    if (typeof stored !== "bigint" || this.isPacked || this.flags || Number.isNaN(value)) return this.words(value);
    return [String(stored), this.units].filter(Boolean).join(" ");
  }

  words(value) {
    if (Number.isNaN(value)) return "no value";
    const flag = this.flags?.get(value);
    if (flag !== undefined) return `${value} (${flag})`;
    const digits = this.isSingle && !this.isPacked ? singleInWords(value) : inWords(value);
    return [digits, this.units].filter(Boolean).join(" ");
  }
}

// Fifteen digits are what any double has for certain; the rest would be noise of arithmetic.
export function inWords(value) {
  return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(15)));
}

// The fewest digits that are no other single-precision number.
function singleInWords(value) {
  for (let digits = 6; digits < 9; digits++) {
    const shown = Number(value.toPrecision(digits));
    if (Math.fround(shown) === value) return String(shown);
  }
  return String(Number(value.toPrecision(9)));
}

const UNIT_SECONDS = { second: 1, minute: 60, hour: 3600, day: 86400 };
const REAL_CALENDARS = ["standard", "gregorian", "proleptic_gregorian"];

// A coordinate: its labels in words, and what kind of axis it is.
export class Coordinate {
  constructor(attributes) {
    this.units = typeof attributes.units === "string" ? attributes.units : "";
    const name = String(attributes.standard_name ?? "");
    this.isLatitude = /^degrees?_?(n|north)$/i.test(this.units) || name === "latitude";
    this.isLongitude = /^degrees?_?(e|east)$/i.test(this.units) || name === "longitude";
    this.isVertical = this.isLatitude || name === "projection_y_coordinate" || attributes.axis === "Y";
    this.isHorizontal = this.isLongitude || name === "projection_x_coordinate" || attributes.axis === "X";
    this.date = dated(this.units, String(attributes.calendar ?? "standard"));
  }

  take(values) {
    this.values = values;
    this.ascends = values.length < 2 || values[0] < values.at(-1);
  }

  label(index) {
    const value = this.values[index];
    if (this.date) return this.date(value);
    if (this.isLatitude) return `${inWords(Math.abs(value))}° ${value < 0 ? "S" : "N"}`;
    if (this.isLongitude) return `${inWords(Math.abs(value))}° ${value < 0 ? "W" : "E"}`;
    return [inWords(value), this.units].filter(Boolean).join(" ");
  }
}

// Dates of calendars that the browser counts too: after 1582 all of these are the same.
function dated(units, calendar) {
  const found = units.match(/^(\w+?)s? since (\d{4})-(\d\d?)-(\d\d?)(?:[T ](\d\d?):(\d\d)(?::(\d\d))?(?:\.0*)?)?(?:Z| ?UTC| ?\+?0?0:00)?$/i);
  const seconds = found && UNIT_SECONDS[found[1].toLowerCase()];
  if (!seconds || !REAL_CALENDARS.includes(calendar.toLowerCase()) || Number(found[2]) < 1583) return null;
  const [year, month, day, hour, minute, second] = found.slice(2).map((part) => Number(part ?? 0));
  const start = Date.UTC(year, month - 1, day, hour, minute, second);
  return (value) => {
    const date = new Date(start + Math.round(value * seconds * 1000));
    if (Number.isNaN(date.getTime())) return `${value} ${units}`;
    return date.toISOString().slice(0, 19).replace("T00:00:00", "").replace("T", " ");
  };
}
