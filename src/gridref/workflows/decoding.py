"""Variables decoded by the CF conventions, as xarray shows them."""

from __future__ import annotations

import xarray as xr

__all__ = ["decoded"]


def decoded(name: str, variable: xr.Variable, *, decode_times: bool) -> xr.Variable:
    """A variable as xarray shows it, in memory."""
    shown = xr.conventions.decode_cf_variable(name, variable, decode_times=decode_times)
    return shown.load()
