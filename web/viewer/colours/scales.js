// Colour scales by the names that matplotlib, D3 and cmocean give them: 256 colours each.
import * as d3 from "d3-scale-chromatic";
import { rgb } from "d3-color";
import cmocean from "./cmocean.json";

const SEQUENTIAL = [
  "viridis", "magma", "inferno", "plasma", "cividis", "turbo", "cubehelix", "gray",
  "Blues", "Greens", "Oranges", "YlGn", "YlGnBu", "GnBu", "YlOrRd",
];
const DIVERGING = ["RdBu", "RdYlBu", "PuOr", "BrBG", "PiYG", "Spectral"];
const CYCLIC = ["rainbow", "sinebow"];
const OF_CMOCEAN = Object.keys(cmocean.scales);
const DIVERGING_OF_CMOCEAN = ["balance", "delta", "curl", "topo"];

export const GROUPS = [
  ["Sequential", SEQUENTIAL],
  ["Sequential, of oceanography", OF_CMOCEAN.filter((name) => ![...DIVERGING_OF_CMOCEAN, "phase"].includes(name))],
  ["Diverging", [...DIVERGING, ...DIVERGING_OF_CMOCEAN]],
  ["Cyclic", [...CYCLIC, "phase"]],
];
export const NAMES = GROUPS.flatMap(([, names]) => names);

const TURNED = ["PuOr"]; // D3 begins at the other end than matplotlib
const D3_NAMES = { cubehelix: "CubehelixDefault" };
const made = new Map();

// 256 colours as [red, green, blue], from the lowest value to the highest.
export function coloursOf(name, isReversed = false) {
  if (!made.has(name)) made.set(name, make(NAMES.includes(name) ? name : "viridis"));
  return isReversed ? made.get(name).toReversed() : made.get(name);
}

function make(name) {
  if (name === "gray") return Array.from({ length: 256 }, (_, i) => [i, i, i]);
  if (cmocean.scales[name]) return cmocean.scales[name].match(/.{6}/g).map((hex) => colour(`#${hex}`));
  const scale = d3[`interpolate${D3_NAMES[name] ?? name[0].toUpperCase() + name.slice(1)}`];
  const isTurned = TURNED.includes(name);
  return Array.from({ length: 256 }, (_, i) => colour(scale((isTurned ? 255 - i : i) / 255)));
}

function colour(text) {
  const { r, g, b } = rgb(text);
  return [r, g, b].map(Math.round);
}
