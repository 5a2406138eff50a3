"""Read fields of GRIB messages with eccodes, for `verify`.

eccodes works in a process of its own: beside netCDF4 and others it brings processes down at their
end, and damaged messages do at once. This file is also the program of that process, so that it
imports nothing else. It takes a message and a short name, and answers with the values in rows, or
with labels.
"""

from __future__ import annotations

import datetime as dt
import pickle
import subprocess
import sys
import tempfile
from typing import Any

_MOST_SECONDS = 10_000 * 3600
"""eccodes reads the step of some averages as millions of years."""


class Eccodes:
    """A process with eccodes."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def values(self, message: bytes, short_name: str) -> Any:
        """The values of a field, of the first one with this name, in 64 bits and in rows.

        Raises
        ------
        ImportError
            If eccodes is not installed.
        ValueError
            In the words of eccodes.
        """
        return self._answer("values", message, short_name)

    def labels(self, message: bytes, short_name: str) -> tuple[int, dict[str, Any]]:
        """Number of axes of a field's grid, and its labels by their names.

        Times are seconds since 1970, steps seconds. Raises as `values` does.
        """
        answer: tuple[int, dict[str, Any]] = self._answer("labels", message, short_name)
        return answer

    def places(self, message: bytes, short_name: str, name: str) -> tuple[Any, tuple[int, ...]]:
        """Latitudes or longitudes in degrees, and along which axes of the grid they are.

        Raises as `values` does.
        """
        answer: tuple[Any, tuple[int, ...]] = self._answer(name, message, short_name)
        return answer

    def _answer(self, *question: Any) -> Any:
        asked, answers = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answers is not None
        try:
            pickle.dump(question, asked)
            asked.flush()
            failed, answer = pickle.load(answers)
        except (EOFError, BrokenPipeError) as error:
            raise ValueError("its process ended") from error
        if failed == "ModuleNotFoundError":
            raise ModuleNotFoundError(answer, name="eccodes")
        if failed:
            raise ValueError(answer)
        return answer

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def _serve() -> None:
    asked, answers = sys.stdin.buffer, sys.stdout.buffer
    while True:
        try:
            what, message, short_name = pickle.load(asked)
        except EOFError:
            return
        try:
            answer = "", _answered(what, message, short_name)
        except Exception as error:  # noqa: BLE001 - the caller raises it
            answer = type(error).__name__, str(error)
        pickle.dump(answer, answers)
        answers.flush()


def _answered(what: str, message: bytes, short_name: str) -> Any:
    import eccodes

    eccodes.codes_grib_multi_support_on()
    with tempfile.TemporaryFile() as file:
        file.write(message)
        file.seek(0)
        while (field := eccodes.codes_grib_new_from_file(file)) is not None:
            if eccodes.codes_get(field, "shortName") == short_name:
                break
            eccodes.codes_release(field)
        else:
            raise ValueError(f"it has no field {short_name}")
    try:
        if what == "values":
            return _values(field)
        return _labels(field) if what == "labels" else _places(field, what)
    finally:
        eccodes.codes_release(field)


def _values(field: Any) -> Any:
    import eccodes
    import numpy as np

    hole = -9e33
    eccodes.codes_set(field, "missingValue", hole)
    values = eccodes.codes_get_values(field)
    turned = _flag(field, "alternativeRowScanning")
    return _in_rows(field, np.where(values == hole, np.nan, values), turned).reshape(-1)


def _flag(field: Any, name: str) -> bool:
    import eccodes

    return bool(eccodes.codes_is_defined(field, name) and eccodes.codes_get(field, name))


def _in_rows(field: Any, values: Any, turned: bool) -> Any:
    """Values in rows; every other row may be turned. Values of other grids are unchanged."""
    shape = _rows_and_columns(field)
    if not shape:
        return values
    in_columns = _flag(field, "jPointsAreConsecutive")
    lines = values.reshape(shape[::-1] if in_columns else shape)
    if turned:
        lines[1::2] = lines[1::2, ::-1].copy()
    return lines.T if in_columns else lines


def _rows_and_columns(field: Any) -> tuple[int, ...]:
    """The shape of a grid; empty if it has no rows of equal length."""
    import eccodes

    shape = tuple(
        eccodes.codes_get(field, name)
        for name in ("Ny", "Nx")
        if eccodes.codes_is_defined(field, name) and not eccodes.codes_is_missing(field, name)
    )
    n_points = eccodes.codes_get(field, "numberOfPoints")
    return shape if len(shape) == 2 and shape[0] * shape[1] == n_points else ()


def _labels(field: Any) -> tuple[int, dict[str, Any]]:
    import eccodes

    def key(name: str, kind: type = int) -> Any:
        try:
            return eccodes.codes_get(field, name, kind)
        except eccodes.CodesInternalError:
            return None

    date, clock = key("dataDate", str), key("dataTime")
    day = dt.datetime(int(date[:4]), int(date[4:6]), int(date[6:]), tzinfo=dt.UTC)
    time = int(day.timestamp()) + clock // 100 * 3600 + clock % 100 * 60
    eccodes.codes_set(field, "stepUnits", "s")
    labels = {"time": time, "number": key("number")}
    step = key("endStep")
    if step is not None and abs(step) < _MOST_SECONDS:
        labels |= {"step": step, "valid_time": time + step}
    kind = key("typeOfLevel", str)
    top = 15 if kind == "potentialVorticity" and key("edition") == 1 else 31
    # It takes negative levels for large ones.
    if (key("scaledValueOfFirstFixedSurface") or key("level") or 0) < 1 << top:
        labels[kind] = key("level", float)
    found = {name: value for name, value in labels.items() if value is not None}
    return len(_rows_and_columns(field)) or 1, found


def _places(field: Any, name: str) -> tuple[Any, tuple[int, ...]]:
    """Places of all points, or of the rows or columns of a grid whose points have the same ones."""
    import eccodes

    kind = eccodes.codes_get(field, "gridType")
    if kind == "polar_stereographic" and (
        _flag(field, "iScansNegatively") or not _flag(field, "jScansPositively")
    ):
        raise ValueError("it places their points as if rows went east and north")
    ends = (f"longitudeOf{which}GridPointInDegrees" for which in ("First", "Last"))
    if kind == "reduced_ll" and eccodes.codes_get(field, next(ends)) > eccodes.codes_get(
        field, next(ends)
    ):
        raise ValueError("it places their points as if rows went west, where they cross 0")
    places = _in_rows(field, eccodes.codes_get_array(field, f"{name}s"), turned=False)
    if places.ndim == 2:
        if (places == places[:, :1]).all():
            return places[:, 0], (0,)
        if (places == places[:1]).all():
            return places[0], (1,)
    return places, tuple(range(places.ndim))


if __name__ == "__main__":
    _serve()
