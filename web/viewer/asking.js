// Much is read only when a button is pressed, which stands where the values will.
import { element } from "./controls.js";
import { bytesInWords } from "./numbers.js";

const MOST_BYTES = 128e6; // more is read when asked to
const MOST_TRAVELLING = 8e6; // over the network, as far as that is known
const MOST_EVER = 4e9; // more is not read: it would not fit into a page

// Done at once, or when the button is pressed; `travelling` bytes become `n_bytes` when they are decoded.
export async function askWhether(n_bytes, where, travelling = undefined) {
  if (n_bytes <= MOST_BYTES && !(travelling > MOST_TRAVELLING)) return;
  if (n_bytes > MOST_EVER) {
    throw new Error(`its chunks take ${bytesInWords(n_bytes)}, more than a page holds (gridref serve --chunks makes smaller ones)`);
  }
  const reads = travelling === undefined ? `up to ${bytesInWords(n_bytes)}` : `${bytesInWords(travelling)} of the files`;
  const words = `Show values (reads ${reads})`;
  await new Promise((go) => {
    where.replaceChildren(element("button", { type: "button", onclick: go }, words));
    where.dataset.ready = "asks";
  });
  where.replaceChildren(element("p", { role: "status" }, "Reading …"));
}
