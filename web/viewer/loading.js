// A few readings at once: each that is there is shown, unless a later one was. Of wishes that come while so
// many are under way the last one is read, and the oldest reading is given up for it if that takes long. So
// a slider that is dragged shows every step that the connection allows.

const AT_ONCE = 3;
const GIVEN_UP_MS = 250;

export class Loading {
  // `read` takes a signal and reads what is wished for when it is called, `show` takes what was read,
  // `failed` is told errors.
  constructor(read, show, failed) {
    Object.assign(this, { read, show, failed, running: [], n: 0 });
  }

  // Done when what is wished for now, or later, is shown, or is known not to come.
  wish() {
    this.isWished = true;
    this.settled ??= settling();
    const { promise } = this.settled;
    this.next();
    return promise;
  }

  // Whether something newer than what is shown is on its way.
  get isBehind() {
    return Boolean(this.isWished || this.running.length);
  }

  next() {
    if (!this.isWished) {
      if (!this.running.length) this.settle();
    } else if (this.running.length < AT_ONCE) {
      this.isWished = false;
      this.start({ number: ++this.n, control: new AbortController() });
    } else {
      this.later ??= setTimeout(() => this.running[0]?.control.abort(), GIVEN_UP_MS);
    }
  }

  settle() {
    this.settled?.done();
    this.settled = undefined;
  }

  async start(reading) {
    const { number, control } = reading;
    this.running.push(reading);
    try {
      const found = await this.read(control.signal);
      if (!this.running.includes(reading)) return; // a later one is shown
      for (const older of this.running.splice(0, this.running.indexOf(reading) + 1)) older.control.abort();
      this.show(found);
    } catch (error) {
      const isNewest = number === this.n && !this.isWished;
      this.running = this.running.filter((each) => each !== reading);
      if (isNewest && !control.signal.aborted) this.failed(error);
    }
    clearTimeout(this.later);
    this.later = undefined;
    this.next();
  }
}

function settling() {
  let done;
  const promise = new Promise((go) => (done = go));
  return { promise, done };
}
