"""The second reader of catalogs, ``docs/examples/read_catalog.py``, against the library.

``python -m tests.conformance.second_reader`` reads every array of all shared files with both, and
prints how many are equal and what the second reader lacks for the others.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import gridref
from gridref.api.catalog import write_catalog
from gridref.errors import GridrefError
from tests.conformance.door_archives import LEFT_OUT, SUFFIXES
from tests.shared_data import ROOT, shared_data_folder

SCRIPT = ROOT / "docs" / "examples" / "read_catalog.py"
_NAME = re.compile(r"^\{'name': '(\w+)'.*$")
"""The name of a data type in what describes it."""
MOST_CHUNKS = 500
"""The second reader takes a fifth of a millisecond for a chunk."""


def load() -> Any:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("read_catalog", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


second = load()


@dataclass
class Compared:
    """What became of arrays.

    Attributes
    ----------
    equal
        Catalog and path of those that both read alike, bit for bit.
    wrong
        Of those that they read differently.
    lacking
        Of those that need what the second reader lacks.
    lacks
        How many need it, by the name of a codec or data type.
    refused
        How many the library refuses to read.
    """

    equal: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    lacking: list[str] = field(default_factory=list)
    lacks: Counter[str] = field(default_factory=Counter)
    refused: int = 0

    def compare(self, folder: Path, name: str, most_chunks: float = float("inf")) -> None:
        """Read the arrays of a catalog with both."""
        theirs, ours = second.Catalog(folder), gridref.open_catalog(folder, allow="*")
        assert [*theirs.arrays] == [*ours.all_arrays()]
        for path, entry in theirs.arrays.items():
            counts = entry["chunks"]
            if sum(counts[each] for each in ("n_ranges", "n_inline", "n_missing")) > most_chunks:
                continue
            if missing := theirs.lacks(path):
                self.lacking.append(f"{name}: {path}")
                self.lacks.update({_NAME.sub(r"\1", each) for each in missing})
                continue
            try:
                expected = np.asarray(ours[path][...])
            except GridrefError:
                self.refused += 1
                continue
            same = same_bits(theirs.read(path), expected)
            (self.equal if same else self.wrong).append(f"{name}: {path}")


def same_bits(got: Any, expected: Any) -> bool:
    """Whether two arrays have the same shape, dtype and bits."""
    return (got.shape, got.dtype, got.tobytes()) == (
        expected.shape, expected.dtype, expected.tobytes()
    )  # fmt: skip


def samples() -> list[Path]:
    """All shared files that are not hostile on purpose."""
    found = (path for path in shared_data_folder().rglob("*") if path.suffix in SUFFIXES)
    return sorted(path for path in found if path.is_file() and not LEFT_OUT & {*path.parts})


def compare_files(files: Iterable[Path], most_chunks: float = MOST_CHUNKS) -> Compared:
    """A catalog of each file that can be scanned, read with both."""
    compared = Compared()
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        catalog = Path(folder, "one.gridref")
        for file in files:
            shutil.rmtree(catalog, ignore_errors=True)
            try:
                write_catalog(gridref.scan(file, on_unsupported="skip"), catalog)
            except GridrefError:
                continue
            compared.compare(catalog, str(file), most_chunks)
    return compared


if __name__ == "__main__":
    found = compare_files(samples())
    for word in ("equal", "wrong", "lacking"):
        print(len(getattr(found, word)), word)
    print(found.refused, "refused by the library")
    print(
        "\n".join([*found.wrong, *(f"lacks {n}: {what}" for what, n in found.lacks.most_common())])
    )
