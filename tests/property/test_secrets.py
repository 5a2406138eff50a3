"""Credentials in addresses, of all shapes: not in what is kept, and not in what is shown."""

from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st

from gridref.errors import GridrefError, Place, Problem
from gridref.io.address import policy_for
from gridref.io.faults import shown as shown_cause
from gridref.io.faults import unavailable
from gridref.model.manifest import Source
from gridref.model.scan_report import Fate, Finding, ScanReport
from gridref.secrets import shown_address, without_secrets, without_signature

SECRET = "S3cr3tX"
NAMES = (
    "X-Amz-Signature", "X-Amz-Credential", "X-Amz-Security-Token", "AWSAccessKeyId", "Signature",
    "X-Goog-Signature", "X-Goog-Credential", "Key-Pair-Id", "Policy", "sig", "skoid", "token",
    "access_token", "api_key", "apikey", "key", "password", "auth", "Authorization", "jwt",
    "subscription-key", "sessionId", "client_secret", "hdnea", "se",
)  # fmt: skip

harmless = st.sampled_from(["version=3", "file=a.nc", "versionId=abc", "x", "format=nc"])
values = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=5).map(quote)
signatures = st.builds(lambda name, end: f"{name}={SECRET}{end}", st.sampled_from(NAMES), values)
users = st.sampled_from(["", f"{SECRET}@", f"me:{SECRET}@", f"me:{SECRET}@more@", f":{SECRET}@"])
hosts = st.sampled_from(["host", "host.example.org:8443", "127.0.0.1:80", "[::1]:8000"])
chains = st.sampled_from(["", "simplecache::", "zip://a.nc::", "tar://x/a.nc::simplecache::"])


@st.composite
def addresses(draw):
    """An address with secrets, and what of it may be kept."""
    protocol = draw(st.sampled_from(["http", "https", "ftp", "sftp", "s3"]))
    head = f"{draw(chains)}{protocol}://"
    between = draw(st.sampled_from(["", " ", "%20", "@", "+"]))
    place = f"{draw(hosts)}/data/a{between}b.nc"
    parts, kept = [], []
    if protocol.startswith("http"):
        parts = draw(st.lists(harmless | signatures, max_size=4))
        kept = [part for part in parts if SECRET not in part]
    end = draw(st.sampled_from(["", f"#{SECRET}"])) if parts else ""
    query = f"?{'&'.join(parts)}" if parts else ""
    rest = f"?{'&'.join(kept)}" if kept else ""
    return f"{head}{draw(users)}{place}{query}{end}", f"{head}{place}{rest}"


@given(addresses())
def test_what_is_kept_has_no_secrets_and_still_names_the_file(address):
    url, kept = address
    assert without_signature(url) == kept
    assert without_signature(kept) == kept


odd = st.text("ab =?&#]['\")(<>,;:/@%\n\t", max_size=6)
"""What ends an address in a text, to one who does not parse it."""
odd_users = st.builds("{}:{}/{}{}@".format, st.just("me"), st.just("a"), odd, st.just(SECRET))
odd_queries = st.builds("?{}{}{}".format, odd, st.sampled_from(["&sig=", "=", ""]), st.just(SECRET))
odd_addresses = st.builds(
    "{}https://{}host/data/a.nc{}{}".format, chains, odd_users | st.just(""), odd_queries, odd
) | st.builds("https://{}host/data/a.nc{}".format, odd_users, st.just("") | odd_queries)


relative_addresses = st.builds(
    "{}a{}.nc?{}{}={}{}".format,
    st.sampled_from(["", "data/", "../", "/srv/x/", "file:///srv/"]),
    st.sampled_from(["", " ", "%20", "=", "@"]),
    st.sampled_from(["", "version=3&", "x;", "a=b#"]),
    st.sampled_from(NAMES),
    st.just(SECRET),
    odd,
)
"""Such as hrefs of listings beside their files."""


@given(
    addresses().map(lambda pair: pair[0]) | odd_addresses | relative_addresses,
    st.sampled_from(
        (
            "{}",
            "cannot read {}: gone",
            "[file {}, chunk (0)]",
            "{0} and {0}",
            "{!r}",
            "{}; see https://example.org/help",
        )
    ),
)
def test_nothing_that_is_shown_has_secrets(url, text):
    said = text.format(url)
    assert SECRET not in without_secrets(said, url)
    assert SECRET not in shown_address(url)
    assert SECRET not in without_secrets(said) or "\n" in said
    place = Place(source=url)
    errors = [GridrefError(text.format(shown_address(url)), place), unavailable(url, OSError(said))]
    errors += [_refusal(url, allow) for allow in ([], [url])]
    report = ScanReport((Finding("/a", Fate.TAKEN, "", url),))
    shown = [Source(url), place, Problem("overlap", "no", sources=(url,)), report, *errors]
    shown += [shown_cause(OSError(said), url)]
    for each in shown:
        assert SECRET not in f"{each} {each!r}", type(each)
    assert not any(SECRET in str(vars(error)) + str(error.args) for error in errors)


def _refusal(url, allow):
    try:
        policy_for(url, allow).require(url)
    except GridrefError as error:
        return error
    return GridrefError("none")


@given(addresses().map(lambda pair: pair[0]) | odd_addresses | relative_addresses)
def test_what_is_shown_of_an_address_stays_as_it_is(url):
    shown = shown_address(url)
    assert shown_address(shown) == shown
    assert without_secrets(shown) == shown
    assert without_secrets(f"{shown}: why? Say x='y'") == f"{shown}: why? Say x='y'"


@given(st.text(max_size=60))
def test_other_texts_stay_as_they_are(text):
    if "://" not in text:
        if "=" not in text:  # no query of a relative address
            assert without_secrets(text) == text
        assert without_signature(text) == text


def test_what_stands_around_addresses_is_still_said():
    text = "cannot read [file https://user:pw@host/a.nc?sig=abc, chunk (0)]: is it there?"
    assert without_secrets(text) == "cannot read [file https://host/a.nc"
    text = "no 'https://user:pw@host/a.nc?sig=abc' (403), nor 'https://host/b': is it there?"
    assert without_secrets(text) == "no 'https://host/a.nc': is it there?"
    text = "no file matches 'f.nc?sig=abc': 'g?.nc' and why?x=3"
    assert without_secrets(text) == "no file matches 'f.nc' and why?x=3"
    text = "'f.nc' of 'f.nc?version=1&token=abc' (is it? b=1)"
    assert without_secrets(text) == "'f.nc' of 'f.nc' (is it? b=1)"
    for text in ("is it?key", "a?b=1", "data/f?.nc", "f.nc?version=3", "is it? a key=1"):
        assert without_secrets(text) == shown_address(text) == text
    assert without_secrets("no file matches 's3://b/f?.nc'") == "no file matches 's3://b/f?.nc'"
