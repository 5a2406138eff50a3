// Builds the viewer, with what it uses of other packages, into the Python package.
import { build } from "esbuild";
import { readFile, writeFile } from "node:fs/promises";

const OUT = new URL("../src/gridref/faces/web/built/", import.meta.url).pathname;

// zarrita.js's codecs in WebAssembly are as large as all the rest, and pages may not run any: the
// viewer has others in their place.
const withoutWasm = {
  name: "without-wasm",
  setup(builder) {
    builder.onResolve({ filter: /^numcodecs\// }, ({ path }) => ({ path, namespace: "left-out" }));
    builder.onLoad({ filter: /.*/, namespace: "left-out" }, () => ({ contents: "export default null;" }));
  },
};

const result = await build({
  entryPoints: ["viewer/main.js"],
  outfile: `${OUT}viewer.js`,
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  metafile: true,
  plugins: [withoutWasm],
});

// Licences ask to go along with copies.
const packages = new Set(
  Object.keys(result.metafile.inputs)
    .map((path) => path.match(/node_modules\/((?:@[^/]+\/)?[^/]+)/)?.[1])
    .filter(Boolean),
);
const notices = [];
const components = [];
for (const name of [...packages].sort()) {
  const folder = `node_modules/${name}`;
  const { version, license, author } = JSON.parse(await readFile(`${folder}/package.json`, "utf8"));
  components.push({ type: "library", name, version, purl: `pkg:npm/${name.replace("@", "%40")}@${version}`, licenses: [{ license: { id: license } }] });
  const text = await readFile(`${folder}/LICENSE`, "utf8").catch(() => `${license}, ${author ?? ""}`);
  notices.push(`${name} ${version}\n\n${text}`);
}
// Colours of cmocean are kept as data beside the code, with their licence.
const { name, version, licence } = JSON.parse(await readFile("viewer/colours/cmocean.json", "utf8"));
notices.push(`${name} ${version}\n\n${licence}`);
components.push({ type: "data", name, version, licenses: [{ license: { id: "MIT" } }] });
await writeFile(`${OUT}licences.txt`, notices.join("\n\n----\n\n"));
await writeFile(
  `${OUT}viewer.cdx.json`,
  JSON.stringify({ bomFormat: "CycloneDX", specVersion: "1.6", version: 1, components }, null, 2) + "\n",
);

// Map tiles of the server have the viewer's colours.
const scales = await build({ entryPoints: ["viewer/colours/scales.js"], bundle: true, format: "esm", write: false });
const { NAMES, coloursOf } = await import(`data:text/javascript;base64,${Buffer.from(scales.outputFiles[0].contents).toString("base64")}`);
const hex = (colour) => colour.map((part) => part.toString(16).padStart(2, "0")).join("");
const colours = Object.fromEntries(NAMES.map((name) => [name, coloursOf(name).map(hex).join("")]));
await writeFile(`${OUT}colours.json`, JSON.stringify(colours));
