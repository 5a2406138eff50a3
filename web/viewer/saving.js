// What is shown, to keep: the picture, the values as files of the server, and lines of Python that read them.
import { button, element } from "./controls.js";
import { drawnTogether } from "./drawing.js";

const FILES = [["netcdf", "NetCDF"], ["geotiff", "GeoTIFF"]];

// Hands a file over to whoever reads the page.
export function download(name, content) {
  const address = URL.createObjectURL(content);
  element("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

export function saving(viewer) {
  const { download: files, raster, opening, origin } = viewer.place.dataset;
  const picture = button("Picture (PNG)", () => savePicture(viewer));
  const kinds = files ? FILES.filter(([kind]) => kind !== "geotiff" || raster) : [];
  const links = kinds.map(([kind, words]) => {
    const link = element("a", { class: "button", download: "" }, words);
    return [link, () => (link.href = `${files}/${encoded(viewer.opened.path)}?at=${asked(viewer)}&format=${kind}`)];
  });
  const code = element("code", {});
  const copy = element("button", { type: "button", class: "copy", "aria-label": "Copy Python" }, "Copy");
  const lines = opening ? [element("div", { class: "snippet" }, copy, element("pre", { tabindex: 0 }, code))] : [];
  const renew = () => {
    if (!place.open || !viewer.planes) return;
    for (const [, follow] of links) follow();
    if (opening) code.textContent = reached(python(viewer, JSON.parse(opening)), origin);
  };
  const place = element(
    "details", { class: "saving", ontoggle: renew },
    element("summary", {}, "Download, and read in Python"),
    element("div", { class: "controls" }, picture, ...links.map(([link]) => link)), ...lines,
  );
  return { place, renew };
}

const encoded = (path) => path.split("/").map(encodeURIComponent).join("/");

// What is seen along each axis of the array itself: a number, or first, end and step.
function selected(viewer) {
  const { opened, origin, parts, picture, shown, height, width } = viewer;
  const [[top, bottom], [left, right]] = picture.frame.seen?.() ?? [[0, height], [0, width]];
  const numbers = opened.array.stored(shown.at);
  const along = (axis, first, end) => {
    const { start, stop, step } = opened.array.slice(axis, [first, end]);
    return [start, stop, step ?? 1];
  };
  return numbers.map((number, axis) => {
    if (axis === shown.rows) return along(axis, origin[0] + top, origin[0] + bottom);
    if (axis === shown.columns) return along(axis, origin[1] + left, origin[1] + right);
    return parts && axis === shown.composite.axis ? along(axis, 0, opened.shape[axis]) : number;
  });
}

function asked(viewer) {
  const range = ([start, stop, step]) => `${start}:${stop}${step > 1 ? `:${step}` : ""}`;
  return selected(viewer).map((each) => (typeof each === "number" ? each : range(each))).join(",");
}

// `opening` are the lines that open the cube, before and behind the option that names a group.
function python(viewer, [before, behind]) {
  const { dims, path } = viewer.opened;
  const [, group, name] = path.match(/^(?:(.*)\/)?([^/]*)$/s);
  const option = group ? `, group=${JSON.stringify(group)}` : "";
  const range = ([start, stop, step]) => `slice(${start}, ${stop}${step > 1 ? `, ${step}` : ""})`;
  const entries = selected(viewer).map((each, axis) => `${JSON.stringify(dims[axis])}: ${typeof each === "number" ? each : range(each)}`);
  return `${before}${option}${behind}\npart = cube[${JSON.stringify(name)}].isel({${entries.join(", ")}})`;
}

// Addresses as this browser reaches the server.
function reached(lines, written) {
  const root = new URL(document.querySelector("nav a").getAttribute("href"), location.href).href;
  return written ? lines.replaceAll(`${written}/`, root) : lines;
}

async function savePicture({ opened, picture, legend, shown }) {
  const hidden = shown.hiddenAxes().filter((axis) => opened.shape[axis] > 1).map((axis) => `${opened.names[axis]} ${opened.label(axis, shown.at[axis])}`);
  const canvas = drawnTogether([picture.place, legend], [opened.heading, hidden.join(", ")].filter(Boolean));
  const content = await new Promise((done) => canvas.toBlob(done));
  download(`${opened.path.split("/").at(-1)}.png`, content);
}
