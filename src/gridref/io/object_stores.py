"""Object stores of obstore for VirtualiZarr's parsers, opened with gridref's options.

`registry_for` takes an address and fsspec options, and returns a registry of obspec-utils with the
store that holds the file.

Source: documentation of obstore ("S3Store", "from_url") and s3fs for the names of options.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from gridref.errors import InvalidRequestError
from gridref.extras import missing_package
from gridref.io.address import is_local, settled_options

_S3_OPTIONS = {
    "access_key_id": "key",
    "secret_access_key": "secret",
    "session_token": "token",
    "endpoint": "endpoint_url",
}
"""The names in s3fs of the settings of obstore's S3Store."""


def uri_of(url: str) -> str:
    """The address of a file as a quoted URI: VirtualiZarr does not quote."""
    return f"file://{url}" if is_local(url) else url


def options_of_store(store: Any) -> dict[str, Any]:
    """The options of s3fs that correspond to those of an ``S3Store``."""
    config = getattr(store, "config", {})
    known = {name: config[key] for key, name in _S3_OPTIONS.items() if key in config}
    region = {"region_name": config["region"]} if "region" in config else {}
    anonymous = str(config.get("skip_signature", False)).lower() == "true"
    provider = getattr(store, "credential_provider", None)
    renewed = {} if provider is None else {"credential_provider": provider}
    return {**known, **renewed, "anon": anonymous, "client_kwargs": region}


def registry_for(url: str, storage_options: Mapping[str, Any] | None = None) -> Any:
    """A registry of obspec-utils with the store that holds a file.

    Parameters
    ----------
    url
        Absolute local path, or URL of a protocol that obstore has (S3, HTTP, GCS, Azure).
    storage_options
        fsspec options. Those of s3fs are taken over; stores of other protocols take no options.

    Raises
    ------
    MissingPackageError
        Without obstore.
    InvalidRequestError
        If obstore has no store for the URL.
    """
    try:
        from obspec_utils.registry import ObjectStoreRegistry
        from obstore.exceptions import BaseError
        from obstore.store import LocalStore, from_url
    except ImportError as error:
        raise missing_package("a parser of VirtualiZarr", error) from error
    if is_local(url):
        return ObjectStoreRegistry({"file://": LocalStore()})
    parts = urlsplit(url)
    root = f"{parts.scheme}://{parts.netloc}"
    try:
        return ObjectStoreRegistry({root: from_url(root, **_settings(url, storage_options))})
    except (BaseError, ValueError) as error:
        raise InvalidRequestError(
            f"VirtualiZarr's parsers read through obstore, which has no store for {root}: {error}"
        ) from error


def _settings(url: str, storage_options: Mapping[str, Any] | None) -> dict[str, Any]:
    """The names in obstore of the options of a filesystem."""
    plain = {"client_options": {"allow_http": True}}
    if not url.startswith("s3://"):
        return plain
    options = settled_options(url, storage_options)
    client = options.get("client_kwargs", {})
    options = {**client, **options}
    region = client.get("region_name")
    config = {key: options[name] for key, name in _S3_OPTIONS.items() if options.get(name)}
    config |= {"region": region} if region else {}
    config |= {"skip_signature": True} if options.get("anon") else {}
    return {**plain, "config": config}
