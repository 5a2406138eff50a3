// One reading at a time: of wishes that come meanwhile the last one is read, and one that takes long is
// given up for it. So a slider that is dragged shows every step that the connection allows.

const GIVEN_UP_MS = 250;

export class Loading {
  // `read` takes a signal and reads what is wished for when it is called; `failed` is told errors.
  constructor(read, failed) {
    Object.assign(this, { read, failed });
  }

  // Done when what is wished for now, or later, is there.
  wish() {
    this.isWished = true;
    if (this.running) {
      this.later ??= setTimeout(() => this.current.abort(), GIVEN_UP_MS);
      return this.running;
    }
    this.running = this.run().finally(() => {
      this.running = undefined;
    });
    return this.running;
  }

  async run() {
    while (this.isWished) {
      this.isWished = false;
      this.current = new AbortController();
      try {
        await this.read(this.current.signal);
      } catch (error) {
        if (!this.current.signal.aborted) this.failed(error);
      } finally {
        clearTimeout(this.later);
        this.later = undefined;
      }
    }
  }
}
