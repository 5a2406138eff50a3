"""Types that many modules name in their annotations."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Int64Array = NDArray[np.int64]

# What an ASGI application is called with (ASGI specification, version 3.0)

type Scope = MutableMapping[str, Any]
type Message = MutableMapping[str, Any]
type Receive = Callable[[], Awaitable[Message]]
type Send = Callable[[Message], Awaitable[None]]
type ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]
