// Coastlines of Natural Earth (1:110m, public domain), as lines of longitude and latitude.
import land from "world-atlas/land-110m.json";
import { placeOf } from "./places.js";

const { scale, translate } = land.transform;

export const LINES = land.arcs.map((arc) => {
  let [x, y] = [0, 0];
  return arc.map(([dx, dy]) => {
    x += dx;
    y += dy;
    return [x * scale[0] + translate[0], y * scale[1] + translate[1]];
  });
});

// For maps: without the lines that close Antarctica along the date line and the pole.
export const LAND = { type: "MultiLineString", coordinates: LINES.flatMap(opened) };

function opened(line) {
  const parts = [[]];
  for (const point of line) {
    if (Math.abs(point[0]) > 179.99 || point[1] < -89.9) parts.push([]);
    else parts.at(-1).push(point);
  }
  return parts.filter((part) => part.length > 1);
}

// Draws coasts on a picture whose elements are one wide; `pixel` is how wide one of the canvas is there.
export function drawCoasts(context, longitudes, latitudes, pixel) {
  if (longitudes.length < 2 || latitudes.length < 2) return;
  context.beginPath();
  for (const shift of [-360, 0, 360]) {
    for (const line of LINES) {
      let previous = null;
      for (const [longitude, latitude] of line) {
        const x = placeOf(longitudes, longitude + shift);
        const y = placeOf(latitudes, latitude);
        if (previous !== null && Math.abs(x - previous) < longitudes.length / 2) context.lineTo(x, y);
        else context.moveTo(x, y);
        previous = x;
      }
    }
  }
  outlined(context, pixel);
}

// A dark line in a light one, which is seen on any colours.
export function outlined(context, pixel) {
  for (const [strokeStyle, width] of [["#ffffff99", 2.4], ["#111111", 1]]) {
    Object.assign(context, { strokeStyle, lineWidth: width * pixel, lineJoin: "round" });
    context.stroke();
  }
}
