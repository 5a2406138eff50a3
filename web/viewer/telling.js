// Words about one element: its value, where it is, and which bytes of which file hold it.

const ASK_MS = 150;

export class Telling {
  // `say` takes the words, `placeOf` finds the bytes of an element.
  constructor(say, placeOf) {
    Object.assign(this, { say, placeOf });
  }

  // Nothing that was asked about another element, or another level, is told any more.
  stop() {
    clearTimeout(this.later);
    this.current = undefined;
  }

  tell(words, at) {
    this.stop();
    this.say(words);
    const telling = (this.current = {});
    this.later = setTimeout(() => this.source(words, at, telling).catch(() => {}), ASK_MS);
  }

  async source(words, at, telling) {
    const { state, source, offset, length } = await this.placeOf(at);
    if (telling !== this.current) return;
    this.say(state === "range" ? `${words}; ${source}, bytes ${offset} to ${offset + length}` : `${words}; ${state}`);
  }
}

// Where the server says that an element is stored.
export async function askedPlace(places, path, at) {
  const address = path.split("/").map(encodeURIComponent).join("/");
  const response = await fetch(`${places}/${address}?at=${at}`, { headers: { accept: "application/json" } });
  return response.json();
}
