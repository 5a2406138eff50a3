"""Pyramids are described as OME-Zarr 0.5 and the Zarr convention "multiscales" want it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import xarray as xr
import zarr

from gridref.errors import GridrefError
from gridref.faces.zarr.store import open_store
from gridref.formats import scan
from gridref.model.array import VirtualGroup
from gridref.model.ome_zarr import image_attributes
from tests.microscopy_files import write_ndpi, write_svs
from tests.shared_data import shared_files

TIFFS = shared_files("tiff/**/*.tif", "tiff/**/*.tiff", "families/**/*.tif", "ome_tiff/**/*.tif*")
ASSET = re.compile(r"^(?!/)(?!.*\.\.)[^/]+(/[^/]+)*$")


def check_ome(image: dict[str, Any], group: zarr.Group) -> None:
    """What OME-NGFF 0.5, "multiscales" and "axes", says with MUST."""
    axes = image["axes"]
    kinds = [axis.get("type") for axis in axes]
    names = [axis["name"] for axis in axes]
    n_space = kinds.count("space")
    others = kinds[: len(kinds) - n_space]
    assert 2 <= len(axes) <= 5
    assert len(set(names)) == len(names)
    assert n_space in (2, 3)
    assert kinds[-n_space:] == ["space"] * n_space
    assert others.count("time") <= 1
    assert len(others) - others.count("time") <= 1
    assert "time" not in others[1:]
    sizes = []
    for level in image["datasets"]:
        array = group[level["path"]]
        assert isinstance(array, zarr.Array)
        assert list(array.metadata.dimension_names or ()) == names
        sizes.append(array.shape)
        (step, *further) = level["coordinateTransformations"]
        assert step["type"] == "scale"
        assert len(step["scale"]) == len(axes)
        assert not further
    assert sizes == sorted(sizes, reverse=True)


def check_layout(attrs: dict[str, Any], group: zarr.Group) -> None:
    """What the convention's schema wants."""
    (convention,) = (c for c in attrs["zarr_conventions"] if c["name"] == "multiscales")
    assert convention["uuid"] == "d35379db-88df-4056-af3a-620245f8e347"
    layout = attrs["multiscales"]["layout"]
    assert layout
    for entry in layout:
        assert ASSET.match(entry["asset"])
        array = group[entry["asset"]]
        assert isinstance(array, zarr.Array)
        source = group[entry.get("derived_from", entry["asset"])]
        assert isinstance(source, zarr.Array)
        ratio = np.array(source.shape) / np.array(array.shape)
        np.testing.assert_allclose(entry["transform"]["scale"], ratio)


def check_tree(group: VirtualGroup) -> int:
    """Check all descriptions of pyramids, and that xarray opens the tree; their number."""
    root = zarr.open_group(open_store(group), mode="r")
    n_checked = 0
    for path, node in group.walk():
        here = root[path] if path else root
        assert isinstance(here, zarr.Group)
        attrs = dict(here.attrs)
        if "ome" in node.attrs:
            assert attrs["ome"]["version"] == "0.5"
            for image in attrs["ome"]["multiscales"]:
                check_ome(image, here)
                n_checked += 1
        if "multiscales" in node.attrs:
            check_layout(attrs, here)
            n_checked += 1
    if n_checked:
        tree = xr.open_datatree(open_store(group), engine="zarr", consolidated=False)
        for path, array in group.all_arrays().items():
            assert tree[path].shape == array.shape
    return n_checked


@pytest.mark.long(but=16)
@pytest.mark.parametrize("path", TIFFS)
def test_shared_files(path: Path) -> None:
    try:
        group = scan(str(path), on_unsupported="skip")
    except GridrefError:
        return
    pyramids = [node for _, node in group.walk() if {"0", "overview_1"} & {*node.groups}]
    if path.name == "haraldk__TwelveMonkeys__BigTIFFSubIFD4.tif":
        pyramids.clear()  # pages beside samples: two axes that are neither time nor space
    images = [node for _, node in group.walk() if "ome" in node.attrs and "image" in node.arrays]
    assert check_tree(group) == len(pyramids) + len(images)


@pytest.mark.parametrize(("suffix", "n_images"), [(".svs", 1), (".ndpi", 2)])
def test_slides(tmp_path: Path, suffix: str, n_images: int) -> None:
    path = tmp_path / f"slide{suffix}"
    image = np.random.default_rng(1).integers(0, 255, (200, 512, 3), np.uint8)
    (write_svs if suffix == ".svs" else write_ndpi)(path, image)
    assert check_tree(scan(str(path))) == n_images


@pytest.mark.parametrize("axes", ["TCZYX", "CYX", "TYX", "ZYXS", "TYXS", "YX"])
def test_ome_tiff_pyramids(tmp_path: Path, axes: str) -> None:
    path = tmp_path / "pyramid.ome.tif"
    lengths = {"T": 2, "C": 2, "Z": 3, "Y": 96, "X": 128, "S": 3}
    data = np.zeros([lengths[axis] for axis in axes], np.uint8)
    rgb = {"photometric": "rgb"} if "S" in axes else {"photometric": "minisblack"}
    step = (..., slice(None, None, 2), slice(None, None, 2), *[slice(None)] * ("S" in axes))
    options: dict[str, Any] = {"tile": (32, 32), **rgb}
    with tifffile.TiffWriter(path, ome=True) as writer:
        writer.write(data, subifds=1, metadata={"axes": axes}, **options)
        writer.write(np.ascontiguousarray(data[step]), subfiletype=1, **options)
    assert check_tree(scan(str(path))) == 1


@pytest.mark.parametrize(
    "dims",
    [("c", "t", "y", "x"), ("c", "sample", "y", "x"), ("y", "x", "sample"), ("t", "q", "c", "y")],
)
def test_what_ome_zarr_does_not_know_is_not_described(dims: tuple[str, ...]) -> None:
    assert image_attributes("", ["0/image"], [(4,) * len(dims)], dims, {}) is None
