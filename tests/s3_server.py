"""An S3 server on the loopback device, and what fsspec needs to talk to it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
from moto.s3.models import s3_backends
from moto.server import ThreadedMotoServer

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
