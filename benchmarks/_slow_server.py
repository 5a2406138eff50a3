"""Files over HTTP, each answer late: ``python -m benchmarks._slow_server FOLDER SECONDS``.

Prints its port; ``/count`` answers how many requests came since it was last asked.
"""

from __future__ import annotations

import hashlib
import re
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    folder: Path
    seconds: float
    n_requests = 0

    def log_message(self, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        if self.path == "/count":
            self.send(200, str(Handler.n_requests).encode(), {})
            Handler.n_requests = 0
            return
        Handler.n_requests += 1
        time.sleep(self.seconds)
        path = self.folder / self.path.lstrip("/")
        if not path.is_file():
            self.send(404, b"", {})
            return
        size = path.stat().st_size
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        start = int(wanted[1]) if wanted else 0
        stop = min(size, int(wanted[2]) + 1) if wanted and wanted[2] else size
        with path.open("rb") as file:
            file.seek(start)
            body = file.read(stop - start)
        headers = {
            "ETag": f'"{hashlib.md5(str(path).encode()).hexdigest()}"',
            "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT",
            "Accept-Ranges": "bytes",
        }
        if wanted:
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
        self.send(206 if wanted else 200, body, headers)

    def send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class Server(ThreadingHTTPServer):
    request_queue_size = 128  # others come again a second later


def main() -> None:
    Handler.folder, Handler.seconds = Path(sys.argv[1]), float(sys.argv[2])
    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    print(server.server_address[1], flush=True)
    server.serve_forever(0.05)


if __name__ == "__main__":
    main()
