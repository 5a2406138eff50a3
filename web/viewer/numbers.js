// Numbers in the shortest form of their type, and units as people write them.
import { format } from "d3-format";

const BITS = { float16: 11, float32: 24, float64: 53 };
const LEAST = { float16: 2 ** -25, float32: 2 ** -150 }; // half of the smallest number
const RAISED = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };
const MOST_DIGITS = 15; // that any double has for certain: the rest would be noise of arithmetic
const OF_COORDINATES = 12; // which often are sums of many steps

// The fewest digits that are no other number of the type.
export function shortest(value, dtype = "float64") {
  if (!Number.isFinite(value) || Number.isInteger(value)) return String(value);
  const bits = BITS[dtype] ?? BITS.float64;
  if (bits === BITS.float64) return String(Number(value.toPrecision(dtype === "coordinate" ? OF_COORDINATES : MOST_DIGITS)));
  const half = Math.max(LEAST[dtype], 2 ** (Math.floor(Math.log2(Math.abs(value))) - bits));
  for (let digits = 1; digits < 10; digits++) {
    const shown = Number(value.toPrecision(digits));
    if (Math.abs(shown - value) < half) return String(shown);
  }
  return String(value);
}

// An unpacked number, as finely as its packing counts.
export function asFineAs(value, step) {
  if (!Number.isFinite(value)) return String(value);
  const decimals = Math.min(MOST_DIGITS, Math.max(0, 2 - Math.floor(Math.log10(Math.abs(step)))));
  return String(Number(value.toFixed(decimals)));
}

const FOUR = format(".4~r");
const POWER = format(".3~e");

// Four digits, for legends, captions and ticks.
export function roughly(value) {
  const size = Math.abs(value);
  if (size === 0 || (size >= 1e-3 && size < 1e7)) return FOUR(value);
  const [digits, power] = POWER(value).split("e");
  return `${digits} × 10${[...power.replace("+", "").replace("−", "-")].map((sign) => RAISED[sign]).join("")}`;
}

const NAMES = {
  degrees_north: "° N", degree_north: "° N", degrees_east: "° E", degree_east: "° E",
  degree: "°", degrees: "°", deg: "°", deg_c: "°C", degc: "°C", celsius: "°C", degree_celsius: "°C",
  degrees_celsius: "°C", kelvin: "K", meter: "m", meters: "m", metre: "m", metres: "m", percent: "%",
  micrometer: "µm", micrometre: "µm", um: "µm", nanometer: "nm", nanometre: "nm", 1: "", "-": "",
};

export function unitsInWords(units) {
  if (typeof units !== "string") return "";
  const known = NAMES[units.trim().toLowerCase()];
  if (known !== undefined) return known;
  return units.trim().replace(/(?<=^|[\s./*])([A-Za-z%°µΩ]+)(?:\*\*|\^)?(-?\d+)(?=$|[\s./*])/g, (whole, name, power) => name + [...power].map((sign) => RAISED[sign]).join(""));
}

export function bytesInWords(n_bytes) {
  const power = Math.min(8, Math.floor(Math.log10(Math.max(1, n_bytes)) / 3));
  return `${Math.round(n_bytes / 1000 ** power)} ${["B", "kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"][power]}`;
}
