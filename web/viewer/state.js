// What is shown, kept in the address: a link leads to the same picture.

export function readState() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

export function writeState(state) {
  const kept = Object.entries(state).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const text = new URLSearchParams(kept).toString();
  if (text !== location.hash.slice(1)) history.replaceState(null, "", `#${text}`);
}
