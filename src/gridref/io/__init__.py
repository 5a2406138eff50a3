"""From an address to bytes: local files by positioned reads, everything else by fsspec."""

from gridref.io.address import (
    Allow,
    DataNames,
    absolute_url,
    beside,
    catalog_options,
    expand_urls,
    is_local,
    open_filesystem,
    options_for,
    policy_for,
    real_path,
    slashed,
)
from gridref.io.coalesce import MergedReads, Merging, plan_reads
from gridref.io.context import (
    AtHand,
    Layouts,
    Reads,
    Traffic,
    counted_traffic,
    current_context,
    current_traffic,
    keeps_at_hand,
    note_opened,
    working,
)
from gridref.io.faults import MAX_REQUESTS, RetryPolicy, is_absent, status_of, within_limit
from gridref.io.identity import Buffer, Coverage, RangeFetcher, checksum_of, coverage_of, crc32c_of
from gridref.io.local import read_file, refuse_names_alike
from gridref.io.pool import IdentityCheck, SourcePool
from gridref.io.remote import Beginnings
from gridref.io.scan_file import ScanFile, collector_paused, describe_source, open_for_scan

__all__ = [
    "MAX_REQUESTS",
    "Allow",
    "AtHand",
    "Beginnings",
    "Buffer",
    "Coverage",
    "DataNames",
    "IdentityCheck",
    "Layouts",
    "MergedReads",
    "Merging",
    "RangeFetcher",
    "Reads",
    "RetryPolicy",
    "ScanFile",
    "SourcePool",
    "Traffic",
    "absolute_url",
    "beside",
    "catalog_options",
    "checksum_of",
    "collector_paused",
    "counted_traffic",
    "coverage_of",
    "crc32c_of",
    "current_context",
    "current_traffic",
    "describe_source",
    "expand_urls",
    "is_absent",
    "is_local",
    "keeps_at_hand",
    "note_opened",
    "open_filesystem",
    "open_for_scan",
    "options_for",
    "plan_reads",
    "policy_for",
    "read_file",
    "real_path",
    "refuse_names_alike",
    "slashed",
    "status_of",
    "within_limit",
    "working",
]
