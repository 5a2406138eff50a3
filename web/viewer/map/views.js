// How the earth is laid on a plane: flat, as a globe, or around a pole. Projections of d3-geo.
import { geoAzimuthalEqualArea, geoEquirectangular, geoMercator, geoOrthographic } from "d3-geo";

export const VIEWS = [["stored", "as stored"], ["flat", "map"], ["globe", "globe"], ["north", "north pole"], ["south", "south pole"]];

const REGION = 150; // degrees of longitude; of more, a map is a whole one
const FAR_NORTH = 78;
const BEHIND = 89.5;

// A projection of unit scale, what of the earth it shows, and whether its axes are meridians and parallels.
// `turn` is the meridian that points down around a pole, if anything says so; `centre` the middle of a globe.
export function viewOf(name, extent, { centre, turn } = {}) {
  const { middle, south, north, span } = extent;
  if (name === "globe") {
    const [longitude, latitude] = centre ?? [middle, span > REGION ? 0 : (south + north) / 2];
    return { projection: geoOrthographic().rotate([-longitude, -latitude]).clipAngle(90), farthest: BEHIND, isRound: span > REGION / 2 || north - south > REGION / 2 };
  }
  if (name === "north" || name === "south") {
    const sign = name === "north" ? 1 : -1;
    const edge = sign > 0 ? Math.max(south, 0) : Math.max(-north, 0);
    const farthest = 90 - Math.min(edge, 80);
    const down = turn ?? (span > REGION ? 0 : middle);
    return { projection: geoAzimuthalEqualArea().rotate([-down, -90 * sign]).clipAngle(farthest), farthest, isRound: false };
  }
  const isRegion = span <= REGION && Math.max(Math.abs(south), Math.abs(north)) < FAR_NORTH;
  return { projection: (isRegion ? geoMercator() : geoEquirectangular()).rotate([-middle, 0]), farthest: 181, isFlat: true };
}

// What suits data that are not on meridians and parallels.
export function suitedView({ projection }, { south, north, span }) {
  if (/\+proj=geos/.test(projection ?? "")) return "globe";
  if (north > 85 && south > 20) return "north";
  if (south < -85 && north < -20) return "south";
  return span > REGION && north > 85 && south > 0 ? "north" : "flat";
}
