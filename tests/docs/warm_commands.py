"""The command ``gridref`` for shell blocks, out of a process that has loaded it already.

A page of twenty commands would else spend its time loading packages. What runs is the command's own
``main``, in a process, folder and environment of its own, on the caller's input and output.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

LOADED = (
    "gridref.adapters.cli",
    "gridref.adapters.cli.tabular",
    "gridref.formats.hdf5.scanner",
    "gridref.workflows.catalogs",
    "gridref.workflows.comparing",
    "pyarrow.parquet",
    "pydantic",
    "xarray",
)
"""What most commands load."""
STAY = ("serve", "watch", "demo")
"""Commands that end by a signal, or start others: these are programs of their own."""

CLIENT = """\
#!{python} -IS
import json, os, socket, sys
if sys.argv[1:2] and sys.argv[1] in {stay}:
    os.execv({program!r}, ["gridref", *sys.argv[1:]])
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    socket.send_fds(server, [b"-"], [0, 1, 2])
    server.sendall(json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode())
    server.shutdown(socket.SHUT_WR)
    code = int(server.recv(16))
sys.exit(code if code >= 0 else 128 - code)
"""


@contextmanager
def warm_commands() -> Iterator[None]:
    """Put a quick ``gridref`` in front of the installed one, meanwhile."""
    program = shutil.which("gridref")
    with tempfile.TemporaryDirectory() as folder:
        address, client = f"{folder}/socket", Path(folder, "gridref")
        client.write_text(
            CLIENT.format(python=sys.executable, stay=STAY, program=program, address=address)
        )
        client.chmod(0o755)
        server = subprocess.Popen(
            [sys.executable, __file__, address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # whose threads do not survive forks
        )
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        path = os.environ["PATH"]
        os.environ["PATH"] = f"{folder}{os.pathsep}{path}"
        try:
            yield
        finally:
            os.environ["PATH"] = path
            server.communicate()


def serve(address: str) -> None:
    """Run what is asked for until the standard input ends."""
    for name in LOADED:
        importlib.import_module(name)
    gc.freeze()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
    print("ready", flush=True)
    while True:
        ready, _, _ = select.select([listener, sys.stdin], [], [])
        if sys.stdin in ready:
            return
        client, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os._exit(run(client))
        client.close()


def run(client: socket.socket) -> int:
    """Run one command in a child process, and tell how it ended."""
    _, descriptors, _, _ = socket.recv_fds(client, 1, 3)
    arguments, folder, environment = json.loads(b"".join(iter(lambda: client.recv(65536), b"")))
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        client.sendall(str(os.waitstatus_to_exitcode(status)).encode())
        return 0
    client.close()
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["gridref", *arguments]
    return ended(importlib.import_module("gridref.adapters.cli").main)


def ended(main: Callable[[], None]) -> int:
    """The exit status of a program, as the interpreter gives it, without freeing all."""
    code: object = 0
    try:
        main()
    except SystemExit as end:
        code = end.code
    except BaseException:  # noqa: BLE001 - as the interpreter does
        traceback.print_exc()
        code = 1
    if isinstance(code, str):
        print(code, file=sys.stderr)
    atexit._run_exitfuncs()  # noqa: SLF001 - `os._exit` leaves them out
    sys.stdout.flush()
    sys.stderr.flush()
    return code if isinstance(code, int) else int(code is not None)


if __name__ == "__main__":
    serve(sys.argv[1])
