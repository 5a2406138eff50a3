"""Fields of GRIB messages as eccodes decodes them, which `verify` compares with.

eccodes works in a process of its own: beside netCDF4 and others it brings processes down at their
end, and damaged messages do at once. This file is also the program of that process, so that it
imports nothing else. It takes a message and a short name, and answers with the values in rows.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
from typing import Any


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
        asked, answers = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answers is not None
        try:
            pickle.dump((message, short_name), asked)
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
            message, short_name = pickle.load(asked)
        except EOFError:
            return
        try:
            answer = "", _values(message, short_name)
        except Exception as error:  # noqa: BLE001 - whoever asked raises it
            answer = type(error).__name__, str(error)
        pickle.dump(answer, answers)
        answers.flush()


def _values(message: bytes, short_name: str) -> Any:
    import eccodes
    import numpy as np

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

    def flag(name: str) -> bool:
        defined = eccodes.codes_is_defined(field, name)
        return bool(defined and eccodes.codes_get(field, name))

    hole = -9e33
    eccodes.codes_set(field, "missingValue", hole)
    values = eccodes.codes_get_values(field)
    values = np.where(values == hole, np.nan, values)
    in_columns, turned = flag("jPointsAreConsecutive"), flag("alternativeRowScanning")
    if in_columns or turned:
        shape = eccodes.codes_get(field, "Ny"), eccodes.codes_get(field, "Nx")
        lines = values.reshape(shape[::-1] if in_columns else shape)
        if turned:
            lines[1::2] = lines[1::2, ::-1].copy()
        values = lines.T if in_columns else lines
    eccodes.codes_release(field)
    return values.reshape(-1)


if __name__ == "__main__":
    _serve()
