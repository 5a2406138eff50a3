"""The store of learned forms: what it finds again, and that its size is bounded."""

from __future__ import annotations

import pytest

from gridref.learned import LearnedForms


def test_equal_pieces_are_parsed_once() -> None:
    forms, parsed = LearnedForms(1 << 20), []

    @forms.remembers
    def upper(piece: bytes, width: int) -> bytes:
        parsed.append((piece, width))
        return piece.upper() * width

    for piece, width in [(b"a", 1), (b"a", 2), (b"b", 1)] * 2:
        assert upper(piece, width) == piece.upper() * width
    assert parsed == [(b"a", 1), (b"a", 2), (b"b", 1)]


def test_long_pieces_are_not_kept() -> None:
    forms = LearnedForms(1 << 20)
    length = forms.remembers(len)
    assert [length(bytes(n)) for n in (2048, 2049)] == [2048, 2049]
    assert len(forms) == 1


def test_what_a_parser_refuses_is_refused_again() -> None:
    refuse = LearnedForms(1 << 20).remembers(int)
    for _ in range(2):
        with pytest.raises(ValueError, match="invalid literal"):
            refuse("x")


def test_bytes_are_found_whatever_is_in_their_holes() -> None:
    forms = LearnedForms(1 << 20)
    holes = [slice(2, 4), slice(4, 4), slice(6, 8)]
    assert forms.keep("kind", b"ab..cd..", holes, "value", 10) == "value"
    assert forms.find("kind", b"ab12cd34") == "value"
    assert forms.find("kind", b"ab12ce34") is None
    assert forms.find("kind", b"ab12cd345") is None
    assert forms.find("other kind", b"ab12cd34") is None


def test_other_holes_of_equally_long_bytes_are_looked_through_too() -> None:
    forms = LearnedForms(1 << 20)
    forms.keep("kind", b"ab..", [slice(2, 4)], 1, 10)
    forms.keep("kind", b"..ab", [slice(0, 2)], 2, 10)
    assert [forms.find("kind", data) for data in (b"ab12", b"12ab", b"1234")] == [1, 2, None]


def test_all_forms_together_stay_below_the_limit() -> None:
    forms = LearnedForms(100_000)
    parse = forms.remembers(bytes.upper)
    for number in range(10_000):
        data = number.to_bytes(4) * 8
        forms.keep("kind", data, [slice(number % 16, 20)], number, 100)
        forms.put(("another", number), number, 100)
        parse(data)
        assert forms.n_bytes <= 100_000
    assert 0 < len(forms) < 200
    assert forms.find("kind", data) == number
    forms.clear()
    assert forms.find("kind", data) is None


def test_a_size_of_0_keeps_nothing() -> None:
    forms = LearnedForms(0)
    forms.keep("kind", b"abcd", [slice(2, 4)], "value", 1)
    assert forms.find("kind", b"abcd") is None


def test_equal_values_are_computed_once() -> None:
    forms, computed = LearnedForms(1 << 20), []

    @forms.keeps(lambda quotient, *values: 100)
    def divided(number: int, by: int) -> float | None:
        computed.append((number, by))
        return number / by if by else None

    for values in [(1, 2), (1, 0), (2, 1)] * 2:
        assert divided(*values) == (values[0] / values[1] if values[1] else None)
    assert computed == [(1, 2), (1, 0), (2, 1)]
