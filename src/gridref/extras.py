"""Other packages: those that gridref needs for some things only, and those that add to gridref.

Extras install the former. The latter are found by their entry points.

Source: Python Packaging User Guide, "Core metadata specifications", Requires-Dist, and "Entry
points specification".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, requires, version
from typing import TYPE_CHECKING, Any

from gridref.errors import InvalidRequestError, MissingPackageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

# Extras

_REQUIREMENT = re.compile(r"""(?P<package>[\w.-]+).*extra == ['"](?P<extra>[\w-]+)['"]""")


def missing_package(purpose: str, error: ImportError) -> MissingPackageError:
    """The error that says which extra of gridref to install.

    Parameters
    ----------
    purpose
        What cannot be done without the package, like ``"serving"``.
    error
        What the import raised. For a package that is in no extra, the message repeats it.
    """
    words = {(error.name or "").partition(".")[0], *re.findall(r"[\w.-]+", str(error))}
    words |= {word.replace("_", "-") for word in words}  # obspec_utils is in obspec-utils
    written = {word.lower(): word for word in words}  # metadata has netcdf4, for netCDF4
    for package, extra in _extras().items():
        if (name := written.get(package.lower())) is not None:
            return MissingPackageError(f"{purpose} needs {name}: pip install 'gridref[{extra}]'")
    return MissingPackageError(f"{purpose}: {error}")


@contextmanager
def needed_for(purpose: str) -> Iterator[None]:
    """Raise `missing_package` if an import in the block fails."""
    try:
        yield
    except ImportError as error:
        raise missing_package(purpose, error) from error


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


# Plugins


@dataclass(frozen=True)
class Plugin:
    """A name in one of gridref's entry-point groups, not loaded yet.

    Attributes
    ----------
    name
        What it is called in the group.
    package
        Name and version of the package that it comes from.
    entry_point
        Where it is in that package.
    """

    name: str
    package: str
    entry_point: EntryPoint

    def load(self) -> Any:
        """Import it.

        Raises
        ------
        InvalidRequestError
            Naming the package, if that fails.
        """
        try:
            return self.entry_point.load()
        except Exception as error:  # whatever a foreign module does when it is imported
            raise self.broken(f"{type(error).__name__}: {error}") from error

    def broken(self, problem: str) -> InvalidRequestError:
        """The error about something that is wrong with it."""
        return InvalidRequestError(
            f"{self.entry_point.group} {self.name!r} of the installed package {self.package} cannot"
            f" be used: {problem} ({self.entry_point.value}). Update or uninstall the package"
        )


@cache
def plugins(group: str, own: frozenset[str] = frozenset()) -> Mapping[str, Plugin]:
    """What other packages add to a group, by name, in the order of the names.

    gridref's own entry points are not among them: what gridref brings is found without any
    metadata; a frozen application or a bare checkout has none.

    Parameters
    ----------
    own
        Names of the group that are gridref's.

    Raises
    ------
    InvalidRequestError
        If two packages claim one name, or one claims a name of gridref's: naming both.
    """
    by_name: dict[str, Plugin] = {}
    from importlib.metadata import entry_points

    for plugin in _foreign(entry_points(group=group)):
        other = "gridref itself" if plugin.name in own else None
        if plugin.name in by_name:
            other = f"the installed package {by_name[plugin.name].package}"
        if other is not None:
            raise plugin.broken(f"{other} has that name, too")
        by_name[plugin.name] = plugin
    return dict(sorted(by_name.items()))


def _foreign(declared: Iterable[EntryPoint]) -> Iterable[Plugin]:
    for entry_point in declared:
        package = entry_point.dist
        if package is None:
            yield Plugin(entry_point.name, "of unknown name", entry_point)
        elif package.name != "gridref":
            yield Plugin(entry_point.name, f"{package.name} {package.version}", entry_point)
