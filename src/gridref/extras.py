"""Packages that gridref needs for some things only, and the extras that install them.

Source: Python Packaging User Guide, "Core metadata specifications", Requires-Dist.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, requires, version

from gridref.errors import MissingPackageError

_REQUIREMENT = re.compile(r"""(?P<package>[\w.-]+).*extra == ['"](?P<extra>[\w-]+)['"]""")


def missing_package(purpose: str, error: ImportError) -> MissingPackageError:
    """The error that says which extra of gridref to install.

    Parameters
    ----------
    purpose
        What cannot be done without the package, like ``"serving"``.
    error
        What the import raised. A package that is in no extra is told of in its own words.
    """
    words = {(error.name or "").partition(".")[0], *re.findall(r"[\w.-]+", str(error))}
    words |= {word.replace("_", "-") for word in words}  # obspec_utils is in obspec-utils
    written = {word.lower(): word for word in words}  # metadata has netcdf4, for netCDF4
    for package, extra in _extras().items():
        if (name := written.get(package.lower())) is not None:
            return MissingPackageError(f"{purpose} needs {name}: pip install 'gridref[{extra}]'")
    return MissingPackageError(f"{purpose}: {error}")


def packages_of_extras() -> dict[str, list[str]]:
    """The packages of each extra that a user may want."""
    found: dict[str, list[str]] = {}
    for package, extra in _extras().items():
        found.setdefault(extra, []).append(package)
    return dict(sorted(found.items()))


def version_of(package: str) -> str | None:
    """The version of a package; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@cache
def _extras() -> Mapping[str, str]:
    """The extra that each package is in; what only developers or everybody needs is in none."""
    try:
        requirements = requires("gridref") or []
    except PackageNotFoundError:  # run from its sources, not installed
        return {}
    matches = [match for line in requirements if (match := _REQUIREMENT.match(line))]
    return {
        m["package"]: m["extra"]
        for m in matches
        if m["extra"] not in {"all", "dev", "docs", "test"}
    }
