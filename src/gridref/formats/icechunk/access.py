"""Convert addresses and fsspec options to the form that Icechunk needs.

This module turns an address and its options into the storage of a repository, the containers of its
virtual chunks, and the credentials to read them.

Source: Icechunk's documentation, "Storage" and "Virtual datasets" (2.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, unquote

import icechunk
from icechunk import credentials

from gridref.errors import InvalidRequestError, NotRepresentableError, Place
from gridref.io import absolute_url, is_local
from gridref.io.address import settled_options

_SCHEMES = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "http": "http", "https": "https"}

StorageOptions = Mapping[str, Any] | None


def location_of(url: str) -> str:
    """The address of a file, as virtual references have it: percent-encoded."""
    reason = why_no_location(url)
    if reason is not None:
        raise NotRepresentableError(reason, Place(source=url))
    if is_local(url):
        return f"file://{quote(url)}"
    scheme, _, rest = url.partition("://")
    return url if scheme.startswith("http") else f"{_SCHEMES[scheme]}://{quote(rest)}"


def why_no_location(url: str) -> str | None:
    """Why Icechunk cannot reach an address; None if it can."""
    if is_local(url):
        return None
    scheme = url.partition("://")[0]
    if scheme not in _SCHEMES:
        return f"Icechunk does not read files of {scheme.partition('::')[0]}"
    if scheme.startswith("http") and "?" in url:
        return "its address has a query, which Icechunk leaves out"
    return None


def address_of(location: str) -> str:
    """The address in gridref of the location of a virtual reference."""
    scheme, _, rest = location.partition("://")
    if scheme == "file":
        return unquote(rest)
    return location if scheme.startswith("http") else f"{scheme}://{unquote(rest)}"


def repository_storage(address: str, storage_options: StorageOptions = None) -> icechunk.Storage:
    """The storage of a repository at an address."""
    url = absolute_url(address)
    if is_local(url):
        return icechunk.local_filesystem_storage(url)
    scheme, _, rest = url.partition("://")
    bucket, _, prefix = rest.strip("/").partition("/")
    options = settled_options(url, storage_options)
    match _SCHEMES.get(scheme):
        case "s3":
            return icechunk.s3_storage(
                bucket=bucket, prefix=prefix, **_s3_server(options), **_s3_keys(options)
            )
        case "gs":
            anonymous = options.get("token") == "anon"
            return icechunk.gcs_storage(
                bucket=bucket, prefix=prefix, anonymous=anonymous, from_env=not anonymous
            )
        case "http" | "https":
            return icechunk.http_storage(url)
    raise InvalidRequestError(f"there are no Icechunk repositories on {scheme}", Place(source=url))


def chunk_access(
    prefixes: Iterable[str], storage_options: StorageOptions = None
) -> tuple[list[icechunk.VirtualChunkContainer], dict[str, Any]]:
    """Containers of virtual chunks below some locations, and the credentials for them.

    The options decide from where they are read, never the repository: credentials are not sent to
    servers that others chose.
    """
    containers, authorised = [], {}
    for prefix in prefixes:
        store, credential = _store_of(prefix, settled_options(address_of(prefix), storage_options))
        containers.append(icechunk.VirtualChunkContainer(prefix, store))
        authorised[prefix] = credential
    return containers, credentials.containers_credentials(authorised)


def _store_of(prefix: str, options: Mapping[str, Any]) -> tuple[Any, Any]:
    scheme = prefix.partition("://")[0]
    if scheme == "file":
        store = icechunk.local_filesystem_store(address_of(prefix))
        return store, credentials.Credentials.LocalFileSystemAccess()
    if scheme == "s3":
        server = _s3_server(options)
        return icechunk.s3_store(
            **server,
            anonymous=bool(options.get("anon")),
            s3_compatible=bool(server["endpoint_url"]),
        ), icechunk.s3_credentials(**_s3_keys(options))
    if scheme == "gs":
        anonymous = options.get("token") == "anon"
        return icechunk.gcs_store(), icechunk.gcs_credentials(
            anonymous=anonymous, from_env=not anonymous
        )
    return icechunk.http_store(), credentials.Credentials.HttpAccess()


def _s3_server(options: Mapping[str, Any]) -> dict[str, Any]:
    client = options.get("client_kwargs") or {}
    endpoint = options.get("endpoint_url") or client.get("endpoint_url")
    return {
        "region": client.get("region_name"),
        "endpoint_url": endpoint,
        "allow_http": str(endpoint).startswith("http://"),
        "force_path_style": endpoint is not None,
        "requester_pays": bool(options.get("requester_pays")),
    }


def _s3_keys(options: Mapping[str, Any]) -> dict[str, Any]:
    if options.get("anon"):
        return {"anonymous": True}
    if options.get("key") is None:
        return {"from_env": True}
    return {
        "access_key_id": options["key"],
        "secret_access_key": options.get("secret"),
        "session_token": options.get("token"),
    }
