"""Templates and generated references, with fsspec (which runs them through Jinja) as oracle."""

from __future__ import annotations

import json

import numpy as np
import pytest

import gridref
from gridref.errors import SourceFormatError, UnsupportedFeatureError
from gridref.formats.kerchunk import Reference, Template, parse_references
from gridref.io import SourcePool
from gridref.serve.reader import Reader

DOCUMENT = {
    "version": 1,
    "templates": {"u": "server.domain/path", "f": "{{c}}", "n": "{{ a }}-{{ b }}"},
    "gen": [
        {
            "key": "gen_key{{i}}",
            "url": "http://{{u}}_{{i}}",
            "offset": "{{(i + 1) * 1000}}",
            "length": "1000",
            "dimensions": {"i": {"stop": 5}},
        },
        {
            "key": "v/{{i}}.{{ j }}",
            "url": "http://{{ u }}/{{ '%03d' % (j - 1) }}_{{ w }}_{{n(a=w, b=i*7)}}",
            "dimensions": {
                "i": {"start": 2, "stop": 9, "step": 3},
                "j": [1, 4, -2],
                "w": ["x", "yy"],
            },
        },
    ],
    "refs": {
        "key0": "data",
        "key1": ["http://target_url", 10000, 100],
        "key2": ["http://{{u}}", 10000, 100],
        "key3": ["http://{{f(c='text')}}", 10000, 100],
        "key4": ["http://target_url"],
        "key5": ["a{{ 17 // 5 }}b{{ 17 % 5 }}c{{ -3 + 1 }}{{u + '!'}}"],
    },
}


def by_fsspec(document):
    from fsspec.implementations.reference import ReferenceFileSystem

    pytest.importorskip("jinja2")
    filesystem = ReferenceFileSystem(
        json.loads(json.dumps(document)), simple_templates=False, skip_instance_cache=True
    )
    return filesystem.references


def as_lists(found):
    return {
        key: value.decode()
        if isinstance(value, bytes)
        else [value.url]
        if value.length is None
        else [value.url, value.offset, value.length]
        for key, value in found.items()
    }


def test_all_is_as_fsspec_makes_it():
    document = json.loads(json.dumps(DOCUMENT))
    document["gen"][1]["key"] = "v/{{i}}.{{ j }}.{{w}}"
    found = as_lists(parse_references(json.dumps(document).encode()))
    expected = {
        key: value.decode() if isinstance(value, bytes) else value
        for key, value in by_fsspec(document).items()
    }
    assert found == expected
    assert len(found) == 6 + 5 + 18


def test_two_references_of_one_key_are_refused():
    with pytest.raises(SourceFormatError, match=r"two references of 'v/2\.1'"):
        parse_references(json.dumps(DOCUMENT).encode())


def test_a_generated_array_is_read(tmp_path):
    values = np.arange(24, dtype="<i4")
    (tmp_path / "data.bin").write_bytes(b"head" + values.tobytes())
    document = {
        "version": 1,
        "templates": {"file": "data.bin"},
        "gen": [
            {
                "key": "v/{{i}}",
                "url": "{{file}}",
                "offset": "{{4 + i * 32}}",
                "length": "32",
                "dimensions": {"i": {"stop": 3}},
            }
        ],
        "refs": {
            ".zgroup": '{"zarr_format": 2}',
            "v/.zarray": json.dumps(
                {
                    "zarr_format": 2,
                    "shape": [24],
                    "chunks": [8],
                    "dtype": "<i4",
                    "compressor": None,
                    "filters": None,
                    "order": "C",
                    "fill_value": 0,
                }
            ),
        },
    }
    path = tmp_path / "refs.json"
    path.write_text(json.dumps(document))
    array = gridref.scan(path)["v"]
    np.testing.assert_array_equal(Reader(SourcePool()).read(array), values)


@pytest.mark.parametrize(
    "text",
    [
        "{{ i.__class__ }}",
        "{{ i ** 9 }}",
        "{{ 'a' * 9 }}",
        "{{ i / 2 }}",
        "{{ i // 0 }}",
        "{{ unknown }}",
        "{{ i | abs }}",
        "{{ [i] }}",
        "{{ f(i) }}",
        "{{ i(c=1) }}",
        "{{ f }}",
        "{{ f(c=f) }}",
        "{{ f(**i) }}",
        "{{ i",
        "{{}}",
        "{% for x in y %}{{ i }}{% endfor %}",
        "{{-i}}",  # Jinja removes the space around the braces
        "{# a remark #}{{ i }}",
        "{{ '%999999d' % i }}",
        "{{ '%s' % i }}",
        "{{ 9999999999 * 9999999999 }}",
        "{{ " + "-" * 5000 + "1 }}",
        "{{ lambda: 1 }}",
        "{{ True }}",
    ],
)
def test_other_expressions_are_refused(text):
    with pytest.raises(UnsupportedFeatureError, match="cannot be read"):
        Template(text).render({"i": 3, "f": Template("{{c}}")})


ENTRY = {"key": "a{{i}}", "url": "b", "dimensions": {"i": {"stop": 3}}}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"offset": "1"}, SourceFormatError, "both offset and length"),
        ({"offset": "x", "length": "1"}, SourceFormatError, "'x'"),
        ({"offset": "-1", "length": "1"}, SourceFormatError, "'-1'"),
        ({"dimensions": None}, SourceFormatError, "no dimensions"),
        ({"dimensions": {"i": {"stop": "3"}}}, SourceFormatError, "dimension of gen"),
        ({"dimensions": {"i": {"stop": 3, "step": 0}}}, SourceFormatError, "dimension of gen"),
        ({"dimensions": {"i": {"stop": 10**12}}}, UnsupportedFeatureError, "1000000000000"),
        ({"key": 3.5}, SourceFormatError, "key of an entry"),
        ({"key": "a"}, SourceFormatError, "two references of 'a'"),
    ],
)
def test_bad_generators_are_refused(change, error, message):
    document = {"version": 1, "refs": {}, "gen": [{**ENTRY, **change}]}
    with pytest.raises(error, match=message):
        parse_references(json.dumps(document).encode())


def test_offsets_may_be_numbers():
    document = {"version": 1, "gen": [{**ENTRY, "offset": 4, "length": 2}]}
    found = parse_references(json.dumps(document).encode())
    assert found["a2"] == Reference("b", 4, 2)
