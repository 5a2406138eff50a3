"""Remove credentials and signatures from addresses before they are shown or stored.

Addresses are parsed as the programs that open them do (RFC 3986, section 3, and fsspec's chains):
protocol, user, server, path, query. Of one that no program can read, as it has a password that is
not escaped (``http://me:pass/word@host``), nothing is shown but the protocol.
"""

from __future__ import annotations

import re
import string
from urllib.parse import unquote

_LETTERS = string.ascii_letters + string.digits + "+.-"
"""Of names of protocols."""
_NO_SERVER = frozenset({"file", "local", "memory", "zip", "tar", "libarchive", "reference"})
"""Protocols whose addresses have neither a user nor a query: all is a name."""
_QUOTES = ("'", '"')
_HTTP = frozenset({"http", "https"})
_SERVER = re.compile(r"(?:\[[^\]]*\]|[^:\[\]]*)(?::[0-9]{1,5})?")
_WORD_END = re.compile(r"[\s'\"),;>]|:(?=\s)")
_SERVER_END = re.compile(r"[/?#]")
_NEXT_ADDRESS = re.compile(r"(?:::|[\s,;'\"(\[<])[A-Za-z][A-Za-z0-9+.-]*://")
_MARKS = re.compile(r"[\s:/@?#&;=]+")
_MOST_SHOWN = 500
"""Most characters of an address in a message."""
_LEAST = 4
"""Letters of a part of an address that is looked for in texts."""
_SIGNATURE = re.compile(
    r"x-amz-.*|x-goog-.*|awsaccesskeyid|googleaccessid|signature|expires|policy|key-pair-id"
    r"|s[a-z]{1,2}|skoid|sktid|skt|ske|sks|skv|.*(token|secret|password|passwd|pwd|auth|credential)"
    r".*|(api[-_]?|access[-_]?|subscription[-_]?)?key|sess(ion)?(id)?|hmac|hdnea|jwt|user(name)?",
    re.IGNORECASE,
)
"""Names in queries: AWS SigV2 and SigV4, CloudFront, Google Cloud, Azure SAS, and usual ones."""
_ADDRESS_QUERY = {True: re.compile(r"[?#]"), False: re.compile(r"\?(?=.*=)", re.DOTALL)}
"""Where the query of an address begins, of HTTP and of another protocol."""
_QUERY_IN_WORD = re.compile(r"[^\s?#]*([?#])")
_QUERY_IN_TEXT = {
    True: re.compile(r"\?(?=\w|[^\s'\"?=&]*=)"),
    False: re.compile(r"\?(?=[^\s'\"?=&]*=)"),
}
"""The same behind blanks in a text; the question mark of a sentence is none."""

_RELATIVE_QUERY = {
    True: re.compile(r"\?([^\s'\"?]*)"),
    False: re.compile(r"\?(.*)", re.DOTALL),
}
"""Queries of addresses without a protocol, in texts and alone."""
_QUOTE_BEFORE = re.compile(r"(['\"])[^'\"]*$")


def shown_address(address: str) -> str:
    """An address for people, without user and query."""
    return _parsed(address)[0]


def cut_short(address: str) -> str:
    """An address for a message, without its middle if it is longer than any that is meant."""
    return address if len(address) <= _MOST_SHOWN else f"{address[:400]}...{address[-97:]}"


def without_secrets(text: str, address: str = "") -> str:
    """A text for people, without the users and the queries of the addresses in it.

    Nobody can tell where a query ends that is part of a text: all behind it is left out, except
    for the last quote and what follows it if the address is quoted. So that nothing is lost,
    messages of ours name addresses by `shown_address`.

    Parameters
    ----------
    address
        What it is about: it may hold parts of this, as those of servers' clients do.
    """
    text = text.replace(address, shown_address(address)) if address else text
    for part in _secret_parts(address):
        text = text.replace(part, "...")
    shown, query, quote = _parsed(text, is_text=True)
    end = query.rfind(quote) if quote else -1
    return shown + without_secrets(query[end:]) if end >= 0 else shown


def _secret_parts(address: str) -> list[str]:
    """What the user and the query of an address consist of, the longest first."""
    shown = shown_address(address)
    kept = set(re.split(_MARKS, shown))
    parts = {part for part in re.split(_MARKS, address) if len(part) >= _LEAST and part not in kept}
    return (
        sorted(parts | set(map(unquote, parts)), key=len, reverse=True) if shown != address else []
    )


def without_signature(url: str) -> str:
    """An address that can be kept: without its user, and what signs it in its query.

    The rest of the query stays, as it may say which file is meant.
    """
    place, query, _ = _parsed(url, only_http=True)
    asked, _, fragment = query.partition("#")
    if not asked:
        return place if not fragment or _is_signature(fragment) else f"{place}#{fragment}"
    parts = re.split("([&;])", f"&{asked[1:]}")
    pairs = zip(parts[1::2], parts[2::2], strict=True)
    kept = "".join(mark + part for mark, part in pairs if not _is_signature(part))
    return f"{place}?{kept[1:]}" if kept else place


def _is_signature(part: str) -> bool:
    """Whether a part of a query signs it, or is an address with such a part."""
    names = (each.partition("=")[0].strip() for each in re.split("[?#&;]", unquote(part)))
    return any(map(_SIGNATURE.fullmatch, names))


def _parsed(text: str, *, is_text: bool = False, only_http: bool = False) -> tuple[str, str, str]:
    """What is before the first query, without users; this query and the rest; the quote before."""
    kept, position, quote = [], 0, ""

    def signed() -> tuple[int, str]:
        return (-1, "") if only_http else _signed_query(text, position, is_text=is_text)

    # Before the next address, there may be the query of one without a server.
    while (mark := text.find("://", position)) >= 0 and not 0 <= signed()[0] < mark:
        start = position + len(text[position:mark].rstrip(_LETTERS + ":"))
        before, chain = text[start - 1 : start], text[start:mark]
        if before in _QUOTES or "::" not in chain:
            quote = before if before in _QUOTES else ""
        kept.append(text[position : mark + 3])
        position = mark + 3
        protocol = chain.rpartition(":")[2].lower()
        if protocol in _NO_SERVER:
            continue
        is_http = protocol in _HTTP
        user_end = _user_end(text, position, is_http=is_http, is_text=is_text)
        if user_end is None:
            return f"{''.join(kept)}...", text[position:], quote
        position = user_end
        query = _query_of(text, position, is_http=is_http, is_text=is_text)
        next_mark = text.find("://", position)
        if query >= 0 and (next_mark < 0 or query < next_mark) and (is_http or not only_http):
            return "".join([*kept, text[position:query]]), text[query:], quote
    query, own_quote = signed()
    if query >= 0:
        return "".join([*kept, text[position:query]]), text[query:], own_quote or quote
    return "".join([*kept, text[position:]]), "", quote


def _signed_query(text: str, start: int, *, is_text: bool) -> tuple[int, str]:
    """Where a query with a signature begins in an address that is relative, and its quote; or -1.

    Other question marks are of names, patterns and sentences.
    """
    for query in _RELATIVE_QUERY[is_text].finditer(text, start):
        names = [part.partition("=")[0] for part in re.split("[?#&;]", query[1]) if "=" in part]
        if any(map(_SIGNATURE.fullmatch, names)):
            before = _QUOTE_BEFORE.search(text, start, query.start())
            return query.start(), before[1] if before else ""
    return -1, ""


def _user_end(text: str, start: int, *, is_http: bool, is_text: bool) -> int | None:
    """Where the server begins in an address, if the protocol ends at `start`.

    None if no program could tell, and all that is behind may be a password.
    """
    following = _NEXT_ADDRESS.search(text, start)
    stop = following.start() if following else len(text)
    end = _SERVER_END.search(text, start, stop)
    with_user = text[start : end.start() if end else stop]
    server = with_user.rpartition("@")[2]
    readable = _SERVER.fullmatch(_WORD_END.split(server, 1)[0] if is_text else server)
    if not readable and (is_http or "::" not in server):
        return None if "@" in text[start:stop] else start
    return start + len(with_user) - len(server)


def _query_of(text: str, start: int, *, is_http: bool, is_text: bool) -> int:
    """Where the query begins in an address, if the server begins at `start`; or -1."""
    if not is_text:
        found = _ADDRESS_QUERY[is_http].search(text, start)
        return found.start() if found else -1
    word = _QUERY_IN_WORD.match(text, start) if is_http else None
    found = _QUERY_IN_TEXT[is_http].search(text, start)
    return word.start(1) if word else found.start() if found else -1
