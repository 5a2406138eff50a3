"""An S3 server whose answers are late: ``python -m benchmarks._slow_s3 SECONDS``.

The one that the tests use, in a process of its own. Prints its port; ``/count`` answers how many
requests of each kind came since it was last asked: ``GET cube`` of keys below ``cube``, and so on.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server


class Late:
    """A WSGI application that waits before it answers."""

    def __init__(self, seconds: float) -> None:
        self.app: Any = DomainDispatcherApplication(create_backend_app)
        self.seconds = seconds
        self.counted = Counter[str]()

    def __call__(self, environ: dict[str, Any], answer: Callable[..., Any]) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/count":
            said, self.counted = json.dumps(self.counted).encode(), Counter()
            answer("200 OK", [("Content-Length", str(len(said)))])
            return [said]
        below = [*path.split("/"), "", ""][2]
        self.counted[f"{environ['REQUEST_METHOD']} {below}"] += 1
        time.sleep(self.seconds)
        found: Iterable[bytes] = self.app(environ, answer)
        return found


def main() -> None:
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    server = make_server("127.0.0.1", 0, Late(float(sys.argv[1])), threaded=True)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
