"""Running the application under uvicorn."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from gridref.adapters.http.app import create_app
from gridref.adapters.http.memory import keep_freed_memory
from gridref.errors import InvalidRequestError

if TYPE_CHECKING:
    from starlette.types import ASGIApp

__all__ = ["app_from_environment", "serve"]

_SETTINGS = "GRIDREF_SERVE_SETTINGS"
GRACE_SECONDS = 10


def serve(
    catalogs: Iterable[str | os.PathLike[str]],
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    workers: int = 1,
    **options: Any,
) -> None:
    """Serve catalogs until told to stop (SIGINT or SIGTERM); what is being sent is finished first.

    Parameters
    ----------
    catalogs
        Addresses of catalogs, or local directories of catalogs.
    host, port
        Where to listen; loopback only by default.
    workers
        Processes. Each has its own cache and counters.
    **options
        As for `create_app`.

    Raises
    ------
    CatalogError
        If a catalog cannot be opened.
    InvalidRequestError
        For bad options.
    """
    try:
        import uvicorn
    except ImportError as error:
        raise InvalidRequestError("serving needs uvicorn: pip install gridref[http]") from error
    if workers < 1:
        raise InvalidRequestError(f"workers must be >= 1, got {workers}")
    _log_to_stderr()
    keep_freed_memory()
    named = [os.fspath(catalog) for catalog in catalogs]
    # Everything wrong with the catalogs and options shows here, before any process is started.
    app: Any = create_app(named, **options)
    settings: dict[str, Any] = {}
    if workers > 1:
        os.environ[_SETTINGS] = json.dumps({"catalogs": named, "options": options}, default=list)
        app = "gridref.adapters.http.server:app_from_environment"
        settings = {"factory": True, "workers": workers}
    uvicorn.run(
        app,
        host=host,
        port=port,
        access_log=False,
        server_header=False,
        backlog=4096,
        timeout_graceful_shutdown=GRACE_SECONDS,
        log_level="warning",
        **settings,
    )


def app_from_environment() -> ASGIApp:
    """The application of a worker process that `serve` started."""
    _log_to_stderr()
    keep_freed_memory()
    settings = json.loads(os.environ[_SETTINGS])
    return create_app(settings["catalogs"], **settings["options"])


def _log_to_stderr() -> None:
    """One JSON object a line for requests, as they are; plain lines for errors."""
    for name, form in (("gridref.access", "%(message)s"), ("gridref.http", "error: %(message)s")):
        logger = logging.getLogger(name)
        if not logger.handlers:
            handler = logging.StreamHandler(sys.stderr)
            handler.setFormatter(logging.Formatter(form))
            logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
