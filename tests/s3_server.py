"""S3 servers on the loopback device: with made-up credentials, and with ones that expire."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import boto3
from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from moto.s3.models import s3_backends
from moto.server import ThreadedMotoServer
from werkzeug.serving import make_server

BUCKET = "archive"


class Bucket:
    """A bucket of a running server.

    Attributes
    ----------
    options
        fsspec options of the server; its credentials are made up.
    client
        boto3's client.
    """

    def __init__(self, endpoint: str) -> None:
        keys = {"key": "test", "secret": "test"}
        self.options: dict[str, Any] = {
            "s3": {
                **keys,
                "client_kwargs": {"endpoint_url": endpoint, "region_name": "us-east-1"},
            }
        }
        self.client = boto3.client(
            "s3",
            endpoint_url=endpoint,
            region_name="us-east-1",
            aws_access_key_id=keys["key"],
            aws_secret_access_key=keys["secret"],
        )
        self.client.create_bucket(Bucket=BUCKET)

    def put(self, key: str, content: bytes) -> str:
        """Store an object; gives its address."""
        self.client.put_object(Bucket=BUCKET, Key=key, Body=content)
        return f"s3://{BUCKET}/{key}"

    def keys(self, prefix: str) -> list[str]:
        """Keys that begin with `prefix`."""
        found = self.client.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", [])
        return [entry["Key"] for entry in found]


@contextmanager
def s3_bucket() -> Iterator[Bucket]:
    """A server of its own with one empty bucket."""
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        bucket = Bucket(f"http://{host}:{port}")
        try:
            yield bucket
        finally:
            bucket.client.close()
            s3_backends.reset()  # what moto keeps is the process's, not the server's
    finally:
        server.stop()


SECRET = "S3cr3tX"
_TOKEN = re.compile(rf"{SECRET}-(\d+)")
_EXPIRED = (
    '<?xml version="1.0" encoding="UTF-8"?><Error><Code>{}</Code>'
    "<Message>The provided token has expired.</Message></Error>"
)


def new_token() -> str:
    """A credential that holds from now on."""
    return f"{SECRET}-{time.time_ns()}"


def is_fresh(text: str, seconds: float = 1) -> bool:
    """Whether a text holds a credential that is no older than so many seconds."""
    found = _TOKEN.search(text)
    return found is not None and time.time_ns() - int(found[1]) < seconds * 1e9


def bearer_only(
    seconds: float = 1, status: int = 401
) -> Callable[[Mapping[str, str], str], int | None]:
    """For `Site.refuses`: lets in whoever sends a token that is fresh."""

    def refuses(headers: Mapping[str, str], path: str) -> int | None:
        return None if is_fresh(headers.get("Authorization") or path, seconds) else status

    return refuses


@contextmanager
def guarded_s3(seconds: float = 1, code: str = "ExpiredToken") -> Iterator[tuple[str, list[str]]]:
    """A second door to the buckets of `s3_bucket`, for keys that are fresh; and what it refused."""
    inner = DomainDispatcherApplication(create_backend_app)
    refused: list[str] = []

    def application(environ: dict[str, Any], start: Any) -> Any:
        if is_fresh(environ.get("HTTP_AUTHORIZATION", ""), seconds):
            return inner(environ, start)
        refused.append(environ["REQUEST_METHOD"])
        body = b"" if environ["REQUEST_METHOD"] == "HEAD" else _EXPIRED.format(code).encode()
        status = "400 Bad Request" if code == "ExpiredToken" else "403 Forbidden"
        start(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
        return [body]

    server = make_server("127.0.0.1", 0, application, True, request_handler=MotoRequestHandler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.port}", refused
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
