"""Comparison of scanned HDF5 files with what h5py reads."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import h5netcdf
import h5netcdf.dimensions
import h5py
import numpy as np
import xarray as xr
from numpy.typing import NDArray

from gridref.errors import GridrefError
from gridref.formats.hdf5.arrays import ROW_SIZE
from gridref.formats.hdf5.original import OriginalFile
from gridref.formats.registry import scan
from gridref.model.array import VirtualArray, VirtualGroup
from gridref.model.scan_report import Fate
from gridref.testing.reference_reader import read_slowly


@dataclass
class Comparison:
    """What became of the datasets of one file, by path."""

    equal: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)


def read_original(
    source_url: str, path: str, selection: tuple[slice, ...] | None = None
) -> NDArray[Any]:
    """What h5py reads of a dataset, in the form in which a scan presents it."""
    file = OriginalFile(source_url)
    try:
        return file.read(path, selection)
    finally:
        file.close()


def compare_with_h5py(path: Path, group: VirtualGroup) -> Comparison:
    """Read every dataset of a file both ways."""
    result = Comparison()
    arrays = {f"/{name}": array for name, array in group.all_arrays().items()}
    reasons = {
        finding.path: finding.reason for finding in group.report if finding.fate is Fate.SKIPPED
    }
    named = {finding.path for finding in group.report if finding.fate is Fate.NAMED}
    with h5py.File(path) as file:
        for name in dataset_paths(file):
            plain = name.replace("_nc4_non_coord_", "")
            if name in named:
                continue
            if plain in arrays:
                compare(file, name, arrays[plain], result)
                if is_ragged(arrays, plain):
                    compare(file, plain + ROW_SIZE, arrays[plain + ROW_SIZE], result)
            elif name in reasons:
                result.refused[name] = reasons[name]
            else:
                result.wrong[name] = "neither taken nor skipped"
    return result


def scanned_rightly(path: Path, **options: Any) -> VirtualGroup:
    """The scan of a file all of whose datasets are as h5py reads them."""
    group = scan(path, **options)
    result = compare_with_h5py(path, group)
    assert (result.wrong, result.refused, result.unreadable) == ({}, {}, {})
    return group


def is_ragged(arrays: Mapping[str, VirtualArray], name: str) -> bool:
    """Whether an array holds the elements of variable-length sequences."""
    sizes = arrays.get(name + ROW_SIZE)
    dims = arrays[name].dims
    return sizes is not None and sizes.attrs.get("sample_dimension") in dims[:1]


def dataset_paths(file: h5py.File) -> Iterator[str]:
    """Every dataset once, under the name that HDF5 visits first."""
    found: list[str] = []

    def note(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            found.append(f"/{name}")

    # A file may be broken somewhere behind what was found.
    with contextlib.suppress(RuntimeError, OSError, KeyError, ValueError):
        file.visititems(note)
    yield from found


def compare(file: h5py.File, name: str, array: VirtualArray, result: Comparison) -> None:
    """Compare one dataset bit for bit."""
    try:
        expected = read_original(file.filename, name)
    except Exception as error:  # noqa: BLE001 - whatever h5py cannot read is no oracle
        result.unreadable[name] = f"{type(error).__name__}: {error}"
        expected = None
    try:
        found = read_slowly(array)
    except GridrefError as error:
        if expected is not None:
            result.wrong[name] = f"cannot be read: {error}"
        return
    if expected is None:
        return
    window = found[(*(slice(0, n) for n in expected.shape), ...)]
    difference = why_different(window, expected)
    if difference is None and window.shape != found.shape and array.dtype.kind in "iuf":
        outside = np.ones(found.shape, bool)
        outside[tuple(slice(0, n) for n in expected.shape)] = False
        fill_value = file[name].fillvalue if name in file else 0
        fill = np.full(found.shape, fill_value, array.dtype)
        difference = why_different(found[outside], fill[outside])
    if difference is None:
        result.equal.append(name)
    else:
        result.wrong[name] = difference


def why_different(found: Any, expected: Any) -> str | None:
    """The first difference of two arrays; None if they are the same bit for bit."""
    if found.shape != expected.shape:
        return f"shape {found.shape}, expected {expected.shape}"
    if expected.dtype.names is not None:
        if found.dtype.names != expected.dtype.names:
            return f"members {found.dtype.names}, expected {expected.dtype.names}"
        for member in expected.dtype.names:
            difference = why_different(found[member], expected[member])
            if difference is not None:
                return f"member {member}: {difference}"
        return None
    if found.dtype.kind == "T" or expected.dtype.kind == "O":
        return None if (found == expected).all() else f"{found!r:.200} != {expected!r:.200}"
    native = np.dtype(expected.dtype.newbyteorder("=").str)
    if found.dtype != native:
        return f"dtype {found.dtype}, expected {native}"
    ours, theirs = (np.ascontiguousarray(v.astype(native)).tobytes() for v in (found, expected))
    if ours != theirs:
        return f"{found!r:.200} != {expected!r:.200}"
    return None


def differences_from_xarray(path: Path, group: VirtualGroup) -> tuple[int, list[str]]:
    """Compare dimensions, attributes and values of all groups with xarray and h5netcdf.

    Returns
    -------
    tuple
        How many variables are the same, and what differs. Groups that h5netcdf cannot open are
        left out.
    """
    n_equal = 0
    problems: list[str] = []
    for name, node, dataset in opened_groups(path, group):
        found = set(node.arrays) | {
            finding.path.rsplit("/", 1)[-1] for finding in group.report.skipped
        }
        problems += [f"{name}: no {key}" for key in set(dataset.variables) - found]
        problems += attribute_differences(f"{name}@", node.attrs, dataset.attrs)
        for key, array in node.arrays.items():
            where = f"{name}/{key}"
            sequences = key.removesuffix(ROW_SIZE)
            if sequences != key and sequences in node.arrays and is_ragged(node.arrays, sequences):
                variable = dataset.variables[sequences]
                if (array.dims, array.shape) != (variable.dims, variable.shape):
                    problems.append(f"{where}: dims {array.dims} != {variable.dims}")
                continue
            if is_ragged(node.arrays, key):
                attrs = dataset.variables[key].attrs
                problems += attribute_differences(f"{where}@", array.attrs, attrs)
                continue
            if key not in dataset.variables:
                problems.append(f"{where}: not in xarray")
                continue
            different = variable_differences(where, array, dataset.variables[key])
            problems += different
            n_equal += not different
    return n_equal, problems


def opened_groups(
    path: Path, group: VirtualGroup
) -> Iterator[tuple[str, VirtualGroup, xr.Dataset]]:
    """Each group, and what xarray makes of it; groups that h5netcdf cannot open are left out."""
    with sizes_remembered(), contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(
                h5netcdf.File(path, "r", phony_dims="sort", decode_vlen_strings=True)
            )
        except Exception:  # noqa: BLE001 - not what h5netcdf takes for netCDF4
            return
        for name, node in group.walk():
            try:
                store = xr.backends.H5NetCDFStore(file[f"/{name}"] if name else file)
                dataset = xr.open_dataset(store, decode_cf=False, decode_timedelta=False)
            except Exception:  # noqa: BLE001, S112 - as above
                continue
            yield name, node, dataset


@contextlib.contextmanager
def sizes_remembered() -> Iterator[None]:
    """Let h5netcdf find the size of an unlimited dimension once, not at every use of it.

    It looks at all variables along it each time, which takes most of the time with many groups.
    """
    kept = h5netcdf.dimensions.Dimension.size
    sizes: dict[h5netcdf.dimensions.Dimension, int] = {}

    def size(dimension: h5netcdf.dimensions.Dimension) -> int:
        if dimension not in sizes:
            sizes[dimension] = kept.fget(dimension)
        return sizes[dimension]

    with mock.patch.object(h5netcdf.dimensions.Dimension, "size", property(size)):
        yield


def variable_differences(where: str, array: VirtualArray, variable: xr.Variable) -> list[str]:
    n_own = len(array.dims) - variable.ndim  # an array datatype adds dimensions
    problems = []
    if array.dims[: variable.ndim] != variable.dims:
        problems.append(f"{where}: dims {array.dims} != {variable.dims}")
    if array.shape[: variable.ndim] != variable.shape:
        problems.append(f"{where}: shape {array.shape} != {variable.shape}")
    problems += attribute_differences(f"{where}@", array.attrs, variable.attrs)
    kind = array.dtype.kind
    if problems or n_own or kind not in "iufcS":
        return problems
    try:
        expected = np.asarray(variable.values)
    except (OSError, RuntimeError):
        return problems
    native = expected.dtype.newbyteorder("=")
    if kind == "S":  # xarray cuts scalars to the length of the string
        native = np.dtype(f"S{max(native.itemsize, array.dtype.itemsize)}")
    if array.dtype != native:
        return [f"{where}: dtype {array.dtype} != {native}"]
    if read_slowly(array).tobytes() != expected.astype(native).tobytes():
        return [f"{where}: values"]
    return []


def attribute_differences(where: str, found: Any, expected: Any) -> list[str]:
    problems = [f"{where}{key}: missing" for key in expected if key not in found]
    ours = {"flag_values", "flag_meanings"}
    problems += [f"{where}{key}: extra" for key in found if key not in expected and key not in ours]
    for key, value in expected.items():
        if key in found and not same_attribute(found[key], value):
            problems.append(f"{where}{key}: {found[key]!r:.80} != {value!r:.80}")
    return problems


def same_attribute(found: Any, expected: Any) -> bool:
    if isinstance(expected, h5py.Reference):
        return isinstance(found, str)
    if isinstance(expected, str):
        if not isinstance(found, str):
            return False
        return found == expected or "\udc80" <= max(expected, default="") <= "\udcff"
    if isinstance(expected, bytes):
        return found in (expected, expected.decode("latin-1"))
    if isinstance(expected, list):
        return len(found) == len(expected) and all(
            same_attribute(a, b) for a, b in zip(found, expected, strict=True)
        )
    if isinstance(expected, (np.ndarray, np.generic)) and expected.dtype.kind in "iufcb":
        one, other = np.asarray(found), np.asarray(expected)
        native = other.dtype.newbyteorder("=")
        same = one.dtype == native and one.shape == other.shape
        return same and one.tobytes() == other.astype(native).tobytes()
    if isinstance(expected, np.ndarray) and expected.dtype.kind == "O":
        return len(found) == len(expected)
    return type(found) is type(expected) or isinstance(found, dict)
