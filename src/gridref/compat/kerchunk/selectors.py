"""Find the values of a coordinate: the selectors of ``coo_map``.

Source: the interface of kerchunk 0.2.10, ``kerchunk.combine.MultiZarrToZarr``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from gridref.api.layout.sources import label_values
from gridref.compat.kerchunk.references import Input
from gridref.errors import InvalidRequestError, Place
from gridref.faces.zarr.store import open_store
from gridref.model.array import VirtualArray
from gridref.model.conventions import TimeBase

_TIME = ("units", "calendar")


def coordinate_of(
    name: str, selector: Any, number: int, given: Input, dtype: Any = None
) -> VirtualArray:
    """The coordinate of an input along a dimension, with values inline.

    Parameters
    ----------
    name
        The dimension.
    selector
        A constant, a list with a value for each input, a compiled pattern that is looked for in the
        address, a function of ``(number, zarr group, name, address)``, or text: ``"INDEX"``,
        ``"attr:NAME"``, ``"vattr:VARIABLE:NAME"``, ``"data:VARIABLE"``, ``"cf:VARIABLE"``.
    number
        Of the input, from 0.
    given
        The input.
    dtype
        What the values become; ``M8`` of any unit keeps them as numbers with CF units.

    Raises
    ------
    InvalidRequestError
        Naming the input, if it has nothing of the kind, or values that `dtype` cannot hold.
    """
    attrs: Mapping[str, Any] = {}
    if isinstance(selector, str) and selector.startswith(("data:", "cf:")):
        variable = _array(selector.partition(":")[2], given)
        values: Any = variable.read()
        attrs = variable.attrs
    else:
        values = _selected(name, selector, number, given)
    found = np.atleast_1d(np.asarray(values)).reshape(-1)
    try:
        kept, time_attrs = label_values(_of_dtype(found, dtype))
    except InvalidRequestError as error:
        raise InvalidRequestError(
            f"its labels of {name}: {error.reason}", Place(source=given.name)
        ) from error.__cause__
    if name in given.group.arrays and not attrs:
        known = given.group.arrays[name].attrs
        attrs = {key: value for key, value in known.items() if key not in _TIME}
    return VirtualArray.from_numpy(kept, (name,), {**attrs, **time_attrs})


def first_label(coordinate: VirtualArray, name: str, source: str) -> Any:
    """The first value of a coordinate, to sort and compare by: of times nanoseconds.

    Parameters
    ----------
    name, source
        The dimension, and the input, for messages.

    Raises
    ------
    InvalidRequestError
        If there is none, or it is not finite.
    """
    labels = coordinate.read(slice(0, 1)).tolist()
    if not labels or (isinstance(labels[0], float) and not math.isfinite(labels[0])):
        reason = "its first label is missing" if labels else "it has no labels"
        raise InvalidRequestError(f"{reason} along {name}: leave it out", Place(source=source))
    label, base = labels[0], TimeBase.of(coordinate.attrs)
    if base is None or not isinstance(label, int | float):
        return label
    if isinstance(label, int):
        return base.epoch_ns + label * base.unit_ns
    # Floats of different units that mean the same time differ by less than a microsecond.
    return base.epoch_ns + 1000 * round(Fraction(label) * base.unit_ns / 1000)


def variable_name(selector: Any, number: int, given: Input, others: Collection[str]) -> str:
    """The name that the variable of an input gets.

    Parameters
    ----------
    selector
        As for `coordinate_of`; ``"VARNAME"`` is the name that it has.
    number, given
        The input.
    others
        Names of its coordinates.

    Raises
    ------
    InvalidRequestError
        If it has several variables, and so no one name.
    """
    if selector != "VARNAME":
        return str(_selected("var", selector, number, given))
    names = [name for name in given.group.arrays if name not in others]
    if len(names) != 1:
        raise InvalidRequestError(
            f"{given.name} has {len(names)} variables ({', '.join(names)}): say in coo_map['var']"
            " which name is meant"
        )
    return names[0]


def _selected(name: str, selector: Any, number: int, given: Input) -> Any:
    """What a selector that reads no array finds in an input."""
    if isinstance(selector, list):
        if number >= len(selector):
            raise InvalidRequestError(f"coo_map[{name!r}] has {len(selector)} values: too few")
        return selector[number]
    if isinstance(selector, re.Pattern):
        return _matched(selector, given)
    if callable(selector):
        group = zarr.open_group(open_store(given.group), mode="r")
        return selector(number, group, name, given.file)
    if selector == "INDEX":
        return number
    if not isinstance(selector, str):
        return selector
    kind, _, rest = selector.partition(":")
    if kind == "attr":
        return _attribute(given.group.attrs, rest, given)
    if kind == "vattr":
        variable, _, key = rest.partition(":")
        return _attribute(_array(variable, given).attrs, key, given)
    return selector


def _of_dtype(values: NDArray[Any], dtype: Any) -> NDArray[Any]:
    """Values in the dtype that was asked for; numbers of times stay numbers.

    Raises
    ------
    InvalidRequestError
        For a value that is none of this dtype. Floats may be rounded.
    """
    if values.dtype.kind == "T":
        values = np.array(values.tolist(), str)
    wanted = values.dtype if dtype is None else np.dtype(dtype)
    is_text = values.dtype.kind in "US"
    if wanted == values.dtype or (wanted.kind == "M" and not is_text):
        return values
    try:
        if wanted.kind == "M":
            return values.astype(str).astype("M8")
        if is_text and wanted.kind in "iu":
            values = np.array([int(text) for text in values.tolist()], object)
        with np.errstate(all="ignore"):
            found = values.astype(wanted)
            again = found.astype(values.dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidRequestError(f"{error}; {wanted} was asked for in coo_dtypes") from error
    if wanted.kind == "f":
        lost = np.isinf(found) & np.isfinite(values.astype(np.float64))
    else:
        lost = again != values
    if lost.any():
        raise InvalidRequestError(
            f"{wanted}, which was asked for in coo_dtypes, cannot hold {values[lost].tolist()[0]!r}"
        )
    return found


def _matched(pattern: re.Pattern[str], given: Input) -> str:
    match = None if given.file is None else pattern.search(given.file)
    if match is None:
        raise InvalidRequestError(f"{given.file or given.name} does not match {pattern.pattern!r}")
    return str(match[1] if match.groups() else match[0])


def _attribute(attrs: Mapping[str, Any], name: str, given: Input) -> Any:
    if name not in attrs:
        raise InvalidRequestError(f"there is no attribute {name!r}", Place(source=given.name))
    return attrs[name]


def _array(name: str, given: Input) -> VirtualArray:
    found = given.group.arrays.get(name)
    if found is None:
        raise InvalidRequestError(f"there is no variable {name!r}", Place(source=given.name))
    return found
