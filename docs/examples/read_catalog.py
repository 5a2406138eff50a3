"""Read arrays of a gridref catalog with numpy and pyarrow alone, as docs/catalog-format.md says.

    python read_catalog.py cube.gridref        # the arrays, and what this reader lacks for them
    python read_catalog.py cube.gridref tas    # the values of one

Values are right, or there is an error: `LackingError` for what this reader cannot do, ValueError
for damage. It opens any local file that the catalog names: use it on catalogs that you trust.
"""

import base64
import hashlib
import itertools
import json
import sys
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FEATURES = {"pending", "overlays", "overviews", "chunk-statistics"}  # what a reader may pass over
NUMBERS = {f"{kind}{n}" for kind in ("int", "uint", "float") for n in (8, 16, 32, 64)} | {"bool"}


class LackingError(Exception):
    """The catalog needs something that this reader does not have."""


def check(holds, what, error=ValueError):
    if not holds:
        raise error(what)


class Catalog:
    """A catalog in a local folder. `arrays` has the description of each array by path."""

    def __init__(self, folder):
        self.folder, text = Path(folder), (Path(folder) / "gridref.json").read_bytes()
        root = json.loads(text)
        form = (root.get("format"), root.get("format_version"))
        check(form == ("gridref-catalog", 2), f"format {form}", LackingError)
        signed = hashlib.sha256(text.rpartition(b',"checksum":')[0] + b"}").hexdigest()
        check(root.get("checksum") == f"sha256:{signed}", "gridref.json is damaged")
        check({*root["features"]} <= FEATURES, f"features {root['features']}", LackingError)
        self.snapshot = root["snapshot"]
        self.arrays = dict(arrays_of(self.snapshot["root"]))
        self.parts = [self.part(**entry) for entry in self.snapshot["parts"]]

    def part(self, sources, blocks, chunks, **others):
        """The rows of the tables of a part, and where those of each array are."""
        blocks = self.table(blocks)
        index = json.loads(blocks.metadata.metadata[b"gridref"])
        sources = self.table(sources).read().to_pylist()
        return index, blocks.read().to_pylist(), chunk_rows(self.table(chunks)), sources

    def table(self, entry):
        content = (self.folder / entry["file"]).read_bytes()
        check(hashlib.sha256(content).hexdigest() == entry["sha256"], f"{entry['file']} is damaged")
        return pq.ParquetFile(pa.BufferReader(content))

    def lacks(self, path):
        """What this reader lacks to read an array: codecs, data types and the like."""
        entry = self.arrays[path]
        encodings = [self.snapshot["encodings"][number] for number in entry["encodings"]]
        names = {codec["name"] for each in encodings for codec in each["codecs"]}
        names |= {"prefix" for each in encodings if "prefix" in each}
        types = {str(each["data_type"]) for each in (entry, *encodings) if not dtype_of(**each)}
        return sorted(names - {"bytes", *UNDO} | types)

    def read(self, path):
        """All elements of an array."""
        check(not self.lacks(path), f"{path} needs {self.lacks(path)}", LackingError)
        entry = self.arrays[path]
        dtype = dtype_of(**entry)
        out = np.full(entry["shape"], np.array(entry["fill_value"], dtype))
        edges = [edges_of(**self.snapshot["axes"][number]) for number in entry["axes"]]
        for segment in self.snapshot["layouts"][entry["layout"]]:
            index, blocks, chunks, sources = self.parts[segment["part"]]
            index = index[path]
            rows = chunks[index["first_chunk"] :][: index["n_chunks"]]
            grid = np.arange(np.prod(index["grid_shape"], dtype=int)).reshape(index["grid_shape"])
            first = np.array(segment.get("first", [0] * out.ndim), int)
            for at in np.ndindex(*segment["shape"]):
                block = blocks[index["first_block"] + grid[tuple(first + at)]]
                here = zip(edges, np.add(segment["start"], at).astype(int), strict=True)
                box = out[(*(slice(edge[k], edge[k + 1]) for edge, k in here), ...)]
                if block["encoding"] >= 0:
                    encoding = self.snapshot["encodings"][entry["encodings"][block["encoding"]]]
                    self.read_block(block, encoding, rows, sources, box)
        return out

    def read_block(self, block, encoding, rows, sources, out):
        """Write the elements of a block to `out`, which is filled with the fill value."""
        lengths, extents = np.array([encoding["chunk_shape"], block["stored_shape"]], int)
        window = zip(block["origin"], block["step"], out.shape, lengths, strict=True)
        stored = [(origin + step * np.arange(n), length) for origin, step, n, length in window]
        for chunk in itertools.product(*(np.unique(i // length) for i, length in stored)):
            low = np.array(chunk, int) * lengths
            held = np.minimum(lengths, extents - low)
            row = block["first_row"] + int(np.dot(chunk, block["row_stride"]))
            check(0 <= row < len(rows), "a block has other chunks than there are")
            shape = tuple(held if encoding["edge"] == "truncated" else lengths)
            values = self.read_chunk(rows[row], encoding, sources, shape)
            if values is not None:
                hit = [np.flatnonzero(i // n == k) for (i, n), k in zip(stored, chunk, strict=True)]
                inside = [i[h] - a for (i, _), h, a in zip(stored, hit, low, strict=True)]
                reaches = [int(i.max(initial=-1)) for i in inside]
                check(np.all(reaches < held), "a block reaches out of what is stored")
                out[np.ix_(*hit)] = values[np.ix_(*inside)]

    def read_chunk(self, row, encoding, sources, shape):
        """The elements of a stored chunk, unpacked; None where they are the array's fill value."""
        dtype = dtype_of(**encoding)
        if row["state"] == 0 and "fill" not in encoding:
            return None
        if row["state"] == 0:
            values = np.full(shape, np.frombuffer(base64.b64decode(encoding["fill"]), dtype))
        else:
            raw = row["inline"] if row["state"] == 2 else self.fetch(sources[row["source"]], row)
            values = decode(raw, encoding["codecs"], row["filter_mask"], shape, dtype)
        return unpack(values, **encoding["unpacking"]) if "unpacking" in encoding else values

    def fetch(self, source, row):
        """A byte range of a source, which has to be the file that was scanned."""
        url = self.snapshot["prefixes"][source["prefix"]] + source["path"]
        check("://" not in url and "::" not in url, f"the address {url}", LackingError)
        path = self.folder / url  # an absolute path stays as it is
        found = path.stat()
        is_same = self.snapshot["identity"] == "size" or found.st_mtime_ns == source["mtime_ns"]
        check(is_same and found.st_size == source["size_bytes"], f"{path} has changed")
        return pa.memory_map(str(path)).read_at(row["length"], row["offset"])


def arrays_of(group, prefix=""):
    """Paths and descriptions of the arrays of a group, at any depth."""
    yield from ((prefix + name, array) for name, array in group["arrays"].items())
    for name, below in group["groups"].items():
        yield from arrays_of(below, f"{prefix}{name}/")


def chunk_rows(file):
    """Rows of the table of chunks; each row group counts its offsets anew."""
    rows = []
    for number in range(file.num_row_groups):
        source, end = None, 0
        for row in file.read_row_group(number).to_pylist():
            if row["state"] == 1:
                row["offset"] = row["offset_step"] + (end if row["source"] == source else 0)
                source, end = row["source"], row["offset"] + row["length"]
            rows.append(row)
    return rows


def edges_of(extent, edges):
    """Where the blocks of an axis begin, and the end of the last one."""
    if isinstance(edges, int):
        return [*range(0, extent, edges), extent]
    runs = [each if isinstance(each, list) else [each, 1] for each in edges]
    return np.minimum(np.cumsum([0, *np.repeat(*np.transpose(runs))]), extent)


def dtype_of(data_type, **others):
    """The dtype of numbers; None for other types, which this reader lacks."""
    return np.dtype(data_type).newbyteorder("<") if str(data_type) in NUMBERS else None


def decode(raw, codecs, mask, shape, dtype):
    """Undo a chain of codecs; bit `i` of the mask says that codec `i` after "bytes" is absent."""
    for bit, codec in reversed([*enumerate(codecs[1:])]):
        if not mask >> bit & 1:
            raw = UNDO[codec["name"]](raw, **codec["configuration"])
    big = codecs[0]["configuration"].get("endian") == "big"
    return np.frombuffer(raw, dtype.newbyteorder(">" if big else "<")).reshape(shape).astype(dtype)


def unshuffle(raw, elementsize=4):
    whole = len(raw) // elementsize * elementsize
    planes = np.frombuffer(raw, np.uint8, whole).reshape(elementsize, -1)
    return planes.T.tobytes() + raw[whole:]


def unpack(values, fill_values, dtype, scale, offset, unsigned):
    """Convert, blank what is missing, scale and shift, each step rounded to the dtype."""
    check(unsigned is None, "unpacking of integers of the other sign", LackingError)
    out = values.astype(dtype)
    missing = np.isin(out.astype(float), [float(each) for each in fill_values["$tuple"]])
    for operation, factor in ((np.multiply, scale), (np.add, offset)):
        if factor is not None:
            out = operation(out, np.float64(factor)).astype(dtype)
    return np.where(missing, np.array(np.nan, dtype), out)


UNDO = {"numcodecs.zlib": lambda raw, level=1: zlib.decompress(raw), "numcodecs.shuffle": unshuffle}

if __name__ == "__main__":
    catalog = Catalog(sys.argv[1])
    for path in catalog.arrays:
        print(catalog.read(path) if path in sys.argv[2:] else (path, catalog.lacks(path)))
