// What is shown, kept in the address: a link leads to the same picture.

export function readState() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

export function writeState(state) {
  const kept = Object.entries(state).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const ofTheMap = [...new URLSearchParams(location.hash.slice(1))].filter(([key]) => key.startsWith("map-")); // the chunk map's own
  const text = new URLSearchParams([...kept, ...ofTheMap]).toString();
  if (text !== location.hash.slice(1)) history.replaceState(null, "", `#${text}`);
}
