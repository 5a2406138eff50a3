// A mesh over a plane: places among columns and rows, each with its longitude and latitude.

const [LEAST, MOST] = [64, 400]; // nodes along a side

function placesAlong(n) {
  const count = n > MOST ? MOST : n * Math.ceil(LEAST / n);
  return Float64Array.from({ length: count + 1 }, (_, i) => (i * n) / count);
}

export class Mesh {
  // `earth` gives longitude and latitude of a column's and a row's place.
  constructor(earth, rows, columns) {
    this.rows = placesAlong(rows);
    this.columns = placesAlong(columns);
    const n = this.rows.length * this.columns.length;
    [this.longitudes, this.latitudes] = [new Float64Array(n), new Float64Array(n)];
    let i = 0;
    for (const row of this.rows) {
      for (const column of this.columns) [this.longitudes[i], this.latitudes[i++]] = earth(column, row);
    }
  }

  // Calls `act` with the numbers of the nodes of each triangle.
  eachTriangle(act) {
    const wide = this.columns.length;
    for (let row = 0; row + 1 < this.rows.length; row++) {
      for (let column = 0; column + 1 < wide; column++) {
        const i = row * wide + column;
        act(i, i + 1, i + wide);
        act(i + 1, i + wide + 1, i + wide);
      }
    }
  }

  placeOf(node) {
    const wide = this.columns.length;
    return [this.columns[node % wide], this.rows[Math.floor(node / wide)]];
  }
}

// Where most of the mesh is: its middle, how far it goes to each side of that, and how far from the equator.
export function extentOf({ longitudes, latitudes }) {
  const isTaken = new Uint8Array(360);
  let [south, north] = [90, -90];
  for (let i = 0; i < longitudes.length; i++) {
    if (!Number.isFinite(longitudes[i]) || !Number.isFinite(latitudes[i])) continue;
    isTaken[((Math.floor(longitudes[i]) % 360) + 360) % 360] = 1;
    south = Math.min(south, latitudes[i]);
    north = Math.max(north, latitudes[i]);
  }
  let [start, length] = [0, 0]; // of the longest stretch without a node
  for (let first = 0, run = 0; first < 720; first++) {
    run = isTaken[first % 360] ? 0 : run + 1;
    if (run > length && run <= 360) [start, length] = [first - run + 1, run];
  }
  const isRound = length < 20;
  return { south, north, span: isRound ? 360 : 360 - length, middle: isRound ? 0 : (((start + length + (360 - length) / 2 + 180) % 360) + 360) % 360 - 180 };
}

// Which element is seen at each pixel: triangles of a mesh are filled with places among columns and rows.
export const NOTHING = -1;

// `xs` and `ys` are where nodes are on the canvas, NaN where they are not seen; `round` is how many
// pixels go around the earth on a flat map, else 0.
export function elementsSeen(mesh, xs, ys, { width, height, rows, columns, round }) {
  const seen = new Int32Array(width * height).fill(NOTHING);
  const fill = (ax, ay, au, av, bx, by, bu, bv, cx, cy, cu, cv) => {
    const area = (bx - ax) * (cy - ay) - (cx - ax) * (by - ay);
    if (!(Math.abs(area) > 1e-9)) return;
    const top = Math.max(0, Math.ceil(Math.min(ay, by, cy) - 0.5));
    const bottom = Math.min(height - 1, Math.floor(Math.max(ay, by, cy) - 0.5));
    const left = Math.max(0, Math.ceil(Math.min(ax, bx, cx) - 0.5));
    const right = Math.min(width - 1, Math.floor(Math.max(ax, bx, cx) - 0.5));
    for (let y = top; y <= bottom; y++) {
      for (let x = left; x <= right; x++) {
        const [px, py] = [x + 0.5, y + 0.5];
        const b = ((px - ax) * (cy - ay) - (cx - ax) * (py - ay)) / area;
        const c = ((bx - ax) * (py - ay) - (px - ax) * (by - ay)) / area;
        if (b < -1e-9 || c < -1e-9 || b + c > 1 + 1e-9) continue;
        const column = Math.min(columns - 1, Math.max(0, Math.floor(au + b * (bu - au) + c * (cu - au))));
        const row = Math.min(rows - 1, Math.max(0, Math.floor(av + b * (bv - av) + c * (cv - av))));
        seen[y * width + x] = row * columns + column;
      }
    }
  };
  mesh.eachTriangle((i, j, k) => {
    let [ax, bx, cx] = [xs[i], xs[j], xs[k]];
    const [ay, by, cy] = [ys[i], ys[j], ys[k]];
    if (!(ax + bx + cx + ay + by + cy < Infinity)) return;
    const isAround = round && Math.max(ax, bx, cx) - Math.min(ax, bx, cx) > round / 2;
    const most = Math.max(ax, bx, cx);
    if (isAround) [ax, bx, cx] = [ax, bx, cx].map((x) => (most - x > round / 2 ? x + round : x));
    const [[au, av], [bu, bv], [cu, cv]] = [mesh.placeOf(i), mesh.placeOf(j), mesh.placeOf(k)];
    for (const shift of isAround ? [0, -round] : [0]) fill(ax + shift, ay, au, av, bx + shift, by, bu, bv, cx + shift, cy, cu, cv);
  });
  return seen;
}
