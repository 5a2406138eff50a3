"""Find what other installed packages add to gridref through entry points.

Source: Python Packaging User Guide, "Entry points specification".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from gridref.errors import InvalidRequestError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


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
