"""Decode variables by the CF conventions, as xarray shows them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gridref.combine.rules.packing import PACKING_ATTRIBUTES
from gridref.errors import GridrefError, NotRepresentableError, Place
from gridref.model.array import VirtualArray

if TYPE_CHECKING:
    import xarray as xr


MEANING_ATTRIBUTES = ("units", "calendar", *PACKING_ATTRIBUTES)
"""Attributes that change what a stored value means."""


def coordinate_names(arrays: Mapping[str, VirtualArray], attrs: Mapping[str, Any]) -> set[str]:
    """Coordinates of a group: labels of dimensions, and what ``coordinates`` attributes name.

    See the CF conventions, 5; `attrs` are those of the group.
    """
    texts = [array.attrs.get("coordinates") for array in arrays.values()]
    texts.append(attrs.get("coordinates"))
    words = {word for text in texts if isinstance(text, str) for word in text.split()}
    labels = {name for name, array in arrays.items() if array.dims == (name,)}
    return labels | (words & set(arrays))


def decoded(name: str, variable: xr.Variable, *, decode_times: bool) -> xr.Variable:
    """A variable as xarray shows it, in memory.

    Raises
    ------
    NotRepresentableError
        If xarray cannot interpret its attributes.
    """
    with refusing_attributes(name):
        import xarray as xr

        shown = xr.conventions.decode_cf_variable(name, variable, decode_times=decode_times)
        return shown.load()


@contextmanager
def refusing_attributes(name: str | None) -> Iterator[None]:
    """Make whatever xarray raises while it decodes a variable or group an error of ours.

    It takes attributes for texts and numbers; files hold anything under their names.
    """
    try:
        yield
    except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError) as error:
        if isinstance(error, GridrefError):
            raise
        reason = f"xarray does not decode it: {str(error).partition('\n')[0]}"
        raise NotRepresentableError(reason, Place(variable=name)) from error


def decoded_values(
    name: str, raw: NDArray[Any], array: VirtualArray, *, decode_times: bool = True
) -> NDArray[Any]:
    """Values of an array as xarray shows them, out of what is stored."""
    import xarray as xr  # here, so that opening a catalog does without

    variable = xr.Variable(array.dims, raw, dict(array.attrs))
    return np.asarray(decoded(name, variable, decode_times=decode_times).values)
