"""Options of combining: how differences between inputs are resolved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from numpy.typing import NDArray

from gridref.model.array import VirtualArray
from gridref.options import Shown, check_choice, check_choices, refuses_unknown

Read = Callable[[VirtualArray], NDArray[Any]]
"""Reads all values of an array."""

ConvertUnits = Callable[[str, str], tuple[float, float] | None]
"""Factor and offset that turn values of one unit into another; None where there are none."""

Repeat = Literal["minimal", "different", "all"]
"""How to treat a variable without the dimension; see `CombineOptions`."""


@refuses_unknown
@dataclass(frozen=True, repr=False)
class CombineOptions(Shown):
    """How drift between inputs is resolved.

    Attributes
    ----------
    join
        Variables, and labels of other dimensions, that some inputs lack. ``"exact"`` makes them a
        problem, ``"outer"`` fills in missing blocks, ``"inner"`` leaves them out. ``"left"`` and
        ``"right"`` take the labels of the first and the last input, and fill in: by label, where
        inputs lie by their labels. ``"override"`` gives all inputs the first input's labels if
        they have as many, and reports it.
    overlap
        Labels along the dimension that occur in several inputs. ``"raise"`` makes them a problem,
        ``"first"`` and ``"last"`` keep one of each and sort the labels, ``"keep"`` keeps all.
    variables
        Variables without the dimension. ``"minimal"`` keeps one; differing values are a problem,
        except for single values, which become a coordinate along the dimension. ``"different"``
        repeats those that differ along the dimension. ``"all"`` repeats all of them.
    repeated
        The same rules for single variables, by name.
    compat
        How to compare variables without the dimension. ``"equals"`` compares values if they can be
        read. ``"override"`` takes the first without comparing. Labels of dimensions are always
        compared: see `join`.
    combine_attrs
        Attributes that differ: ``"override"`` keeps the first input's, ``"drop_conflicts"`` and
        ``"drop"`` leave out those that differ or all, ``"no_conflicts"`` and ``"identical"`` make
        them a problem.
    conflicts
        ``"raise"`` raises every problem at once. ``"skip"`` leaves out the variables concerned and
        reports them.
    lossy
        Whether dtypes may be promoted to one that cannot hold all values (as for int64 and
        float32).
    convert_units
        Converter for variables whose units differ; True converts with pint. None makes them a
        problem.
    index_variables
        Variables whose values count along a dimension that grows, by name with that dimension.
        Their values are shifted. Variables with an ``instance_dimension`` attribute (CF
        conventions, 9.3.4) need not be named.
    """

    join: Literal["exact", "outer", "inner", "left", "right", "override"] = "exact"
    overlap: Literal["raise", "first", "last", "keep"] = "raise"
    variables: Repeat = "minimal"
    repeated: Mapping[str, Repeat] = field(default_factory=dict)
    compat: Literal["equals", "override"] = "equals"
    combine_attrs: Literal["override", "drop_conflicts", "drop", "no_conflicts", "identical"] = (
        "override"
    )
    conflicts: Literal["raise", "skip"] = "raise"
    lossy: bool = False
    convert_units: ConvertUnits | bool | None = None
    index_variables: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_choices(self)
        for name, rule in self.repeated.items():
            check_choice(f"repeated[{name!r}]", rule, get_args(Repeat))

    def repeat_rule(self, name: str) -> Repeat:
        """The rule for a variable without the dimension."""
        return self.repeated.get(name, self.variables)
