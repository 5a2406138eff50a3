"""What an attempt with a mutated file ends in."""

from __future__ import annotations

import time
from collections.abc import Callable


def end_of(attempt: Callable[[], str], seconds: float) -> str:
    """What an attempt says, or what broke: it raised, or took longer than so many seconds."""
    began = time.monotonic()
    try:
        end = attempt()
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        end = f"broke: {type(error).__name__}: {error}"[:200]
    took = time.monotonic() - began
    return f"broke: slow, {took:.0f} s, then {end}" if took > seconds else end
