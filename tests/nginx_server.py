"""A real nginx on the loopback device."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.programs import program

TYPES = (
    "text/html html; text/css css; text/javascript js; image/svg+xml svg; application/json json;"
)
"""Those of nginx's own mime.types that matter here."""
TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


@contextmanager
def nginx_serving(folder: Path, place: Path, locations: str = "") -> Iterator[str]:
    """Serve a folder; its own files go to `place`. Gives the address; skips without nginx.

    `locations` are further lines of the server's configuration.
    """
    nginx = program("nginx")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    place.chmod(0o755)
    configuration = place / "nginx.conf"
    temporary = "\n".join(f"{name}_temp_path {place}/{name};" for name in TEMPORARY)
    configuration.write_text(
        f"daemon off; pid {place}/pid; error_log {place}/error.log;\n"
        "worker_processes 1; events {}\n"
        f"http {{ access_log {place}/access.log; {temporary}\n"
        f"types {{ {TYPES} }} default_type application/octet-stream;\n"
        f"server {{ listen 127.0.0.1:{port}; root {folder}; autoindex on;\n{locations} }} }}\n"
    )
    user = ["-g", "user root;"] if os.geteuid() == 0 else []
    process = subprocess.Popen([nginx, "-c", str(configuration), "-p", str(place), *user])
    try:
        _wait_for(port)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


def _wait_for(port: int) -> None:
    for _ in range(200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    pytest.fail("nginx did not start")
