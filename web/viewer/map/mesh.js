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
