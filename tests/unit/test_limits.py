"""Limits on what files of strangers may cost: their table, their errors, and how to raise them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import h5py
import numpy as np
import pytest
import tifffile

import gridref
from gridref.errors import InvalidRequestError, UnsupportedFeatureError
from gridref.limits import Limits, limits
from tests.shared_data import ROOT

PAGE = (ROOT / "docs" / "reference" / "limits.md").read_text(encoding="utf-8")


def references(tmp_path: Path, n_chunks: int) -> Path:
    """Kerchunk references that a ``gen`` entry stands for."""
    (tmp_path / "data.bin").write_bytes(bytes(range(n_chunks)))
    array = {
        "zarr_format": 2, "shape": [n_chunks], "chunks": [1], "dtype": "|u1", "fill_value": 0,
        "order": "C", "compressor": None, "filters": None,
    }  # fmt: skip
    document = {
        "version": 1,
        "refs": {".zgroup": json.dumps({"zarr_format": 2}), "v/.zarray": json.dumps(array)},
        "gen": [
            {
                "key": "v/{{i}}",
                "url": str(tmp_path / "data.bin"),
                "offset": "{{i}}",
                "length": "1",
                "dimensions": {"i": {"stop": n_chunks}},
            }
        ],
    }
    (tmp_path / "refs.json").write_text(json.dumps(document))
    return tmp_path / "refs.json"


def test_the_page_lists_every_limit_with_its_number() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| ([\d,]+) \| \S.*\|$", PAGE, re.MULTILINE))
    assert rows == {name: f"{number:,}" for name, number in asdict(Limits()).items()}


def test_an_error_names_the_limit_which_the_environment_raises(
    tmp_path: Path, limited: Callable[[str], None]
) -> None:
    address = references(tmp_path, 3)
    limited("element_bytes=8, generated_references=2")
    with pytest.raises(UnsupportedFeatureError) as caught:
        gridref.scan(address)
    message = str(caught.value)
    assert "3 references, more than the limit generated_references of 2" in message
    assert "GRIDREF_LIMITS=generated_references=NUMBER" in message
    assert "refs.json" in message
    limited("generated_references=3")
    assert gridref.scan(address)["v"].shape == (3,)


def test_a_scan_that_was_kept_under_other_limits_is_done_again(
    tmp_path: Path, limited: Callable[[str], None]
) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["short"], file["long"] = np.zeros(3, "f4"), np.zeros(3, "f8")

    def arrays() -> set[str]:
        gridref.build(
            tmp_path / "a.h5",
            tmp_path / "a.gridref",
            scan=gridref.ScanOptions(on_unsupported="skip"),
            run=gridref.RunOptions(work=tmp_path / "work"),
            overwrite=True,
        )
        return set(gridref.open_catalog(tmp_path / "a.gridref").all_arrays())

    limited("element_bytes=4")
    assert arrays() == {"short"}
    limited("")
    assert arrays() == {"short", "long"}


@pytest.mark.parametrize("text", ["element_byte=8", "element_bytes", "element_bytes=-1", "=3"])
def test_what_is_no_limit_is_refused(text: str, limited: Callable[[str], None]) -> None:
    limited(f"listing_columns=3,{text}")
    with pytest.raises(InvalidRequestError, match=r"GRIDREF_LIMITS .*element_bytes"):
        limits()


def test_scales_of_a_tiff_file_are_not_lost_in_long_metadata(
    tmp_path: Path, limited: Callable[[str], None]
) -> None:
    scale = '<Item name="SCALE" sample="0" role="scale">0.5</Item>'
    xml = f"<GDALMetadata>{scale}<Item name='HISTORY'>{'x' * 2**22}</Item></GDALMetadata>"
    pixels = [(33550, "d", 3, (1.0, 1.0, 0.0), True), (33922, "d", 6, (0.0,) * 6, True)]
    tags = [*pixels, (42112, "s", 0, xml, True)]
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((4, 4), "i2"), extratags=tags)
    with pytest.raises(UnsupportedFeatureError, match=r"xml_characters of 4194304 .*a\.tif"):
        gridref.scan(tmp_path / "a.tif")
    limited("xml_characters=5000000")
    assert gridref.scan(tmp_path / "a.tif")["band_data"].attrs["scale_factor"] == 0.5
