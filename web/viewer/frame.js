// Where the elements of a plane are on the canvas: as stored, which way up, how wide, how near.

const LEAST_SIDE = 48; // a picture that would be thinner is stretched
const FLAT = 26 / 44; // height over width of pictures whose axes have nothing in common

// How high an element is where it is one wide; null where any shape is as good.
export function aspectOf(up, across) {
  const [high, wide] = [up?.step(), across?.step()];
  if (high && wide && high.kind === wide.kind && high.size > 0 && wide.size > 0) return high.size / wide.size;
  if (Boolean(up?.time) !== Boolean(across?.time)) return null;
  const areNamed = Boolean(up && across && (up.units || across.units));
  return areNamed && up.units !== across.units ? null : 1;
}

export class Frame {
  // `up` and `across` are the coordinates of rows and columns, where they have any; `isSouthFirst` is
  // told where the earth says so.
  constructor({ rows, columns, up, across, isStretched, isSouthFirst }) {
    Object.assign(this, { rows, columns, first: [0, 0] });
    this.aspect = isStretched ? null : aspectOf(up, across);
    this.isTurned = isSouthFirst ?? Boolean(up?.up && (up.up > 0) === up.ascends);
    this.isMirrored = Boolean(across?.isHorizontal && !across.ascends);
    this.glass = { zoom: 1, x: 0.5, y: 0.5 };
  }

  // The size of the picture in a room: whole, and as large as can be.
  fit(room) {
    const height = Math.min(room.height, room.width * FLAT);
    const ratio = (this.rows * this.aspect) / this.columns;
    const wide = Math.min(room.width, room.height / ratio);
    const isDrawable = this.aspect !== null && Math.min(wide, wide * ratio) >= LEAST_SIDE;
    [this.width, this.height] = (isDrawable ? [wide, wide * ratio] : [room.width, height]).map(Math.round);
  }

  get corner() {
    const { zoom, x, y } = this.glass;
    return [(x - 0.5 / zoom) * this.width, (y - 0.5 / zoom) * this.height];
  }

  paint(context, ratio, picture) {
    const { zoom } = this.glass;
    const [left, top] = this.corner;
    const [wide, high] = [this.width / this.columns, this.height / this.rows];
    context.setTransform(zoom * ratio, 0, 0, zoom * ratio, -left * zoom * ratio, -top * zoom * ratio);
    context.transform(
      this.isMirrored ? -wide : wide, 0, 0, this.isTurned ? -high : high,
      this.isMirrored ? this.width : 0, this.isTurned ? this.height : 0,
    );
    context.imageSmoothingEnabled = false;
    context.drawImage(picture, 0, 0);
  }

  // From places among columns and rows to the canvas, and back.
  toCanvas(column, row) {
    const [left, top] = this.corner;
    const x = ((this.isMirrored ? this.columns - column : column) * this.width) / this.columns;
    const y = ((this.isTurned ? this.rows - row : row) * this.height) / this.rows;
    return [(x - left) * this.glass.zoom, (y - top) * this.glass.zoom];
  }

  toPlaces(x, y) {
    const [left, top] = this.corner;
    const column = ((x / this.glass.zoom + left) / this.width) * this.columns;
    const row = ((y / this.glass.zoom + top) / this.height) * this.rows;
    return [this.isMirrored ? this.columns - column : column, this.isTurned ? this.rows - row : row];
  }

  // From where to where rows and columns are seen.
  seen() {
    const ends = [this.toPlaces(0, 0), this.toPlaces(this.width, this.height)];
    const span = (axis, length) => {
      const [low, high] = ends.map((end) => end[axis]).sort((a, b) => a - b);
      return [Math.max(0, Math.floor(low + 1e-6)), Math.min(length, Math.ceil(high - 1e-6))];
    };
    return [span(1, this.rows), span(0, this.columns)];
  }

  elementAt(x, y) {
    const [column, row] = this.toPlaces(x, y).map(Math.floor);
    return row >= 0 && column >= 0 && row < this.rows && column < this.columns ? [row, column] : null;
  }

  outlineOf([row, column]) {
    return [[0, 0], [1, 0], [1, 1], [0, 1]].map(([right, down]) => this.toCanvas(column + right, row + down));
  }

  // Which element comes next by an arrow key.
  next([row, column], key) {
    const [up, right] = [this.isTurned ? 1 : -1, this.isMirrored ? -1 : 1];
    const step = { ArrowUp: [up, 0], ArrowDown: [-up, 0], ArrowRight: [0, right], ArrowLeft: [0, -right] }[key];
    const found = [row + step[0], column + step[1]];
    return found[0] >= 0 && found[1] >= 0 && found[0] < this.rows && found[1] < this.columns ? found : null;
  }
}
