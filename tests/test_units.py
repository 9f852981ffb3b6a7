"""Quantities at the border, against numbers written out by hand."""

from __future__ import annotations

import pytest

from ringplan.errors import UnitError
from ringplan.units import DIMENSIONS, MAX_TOKENS, parse, parse_tokens, show

#: Text, dimension, base units.
READ: list[tuple[str, str, float]] = [
    ("80 GB", "B", 80_000_000_000),
    ("80 GiB", "B", 85_899_345_920),
    ("80GiB", "B", 85_899_345_920),
    ("1 KiB", "B", 1024),
    ("1 kB", "B", 1000),
    ("1 MiB", "B", 1_048_576),
    ("1 TB", "B", 1_000_000_000_000),
    ("1 TiB", "B", 1_099_511_627_776),
    ("85520809984 B", "B", 85_520_809_984),
    ("85_520_809_984 B", "B", 85_520_809_984),
    ("1.5e3 MB", "B", 1_500_000_000),
    ("1.5E3 MB", "B", 1_500_000_000),
    ("80e9 B", "B", 80_000_000_000),
    (".5 GB", "B", 500_000_000),
    ("+1 GB", "B", 1_000_000_000),
    ("  80 GB  ", "B", 80_000_000_000),
    ("450 GB/s", "B/s", 450_000_000_000),
    ("400 Gb/s", "B/s", 50_000_000_000),
    ("400 Gbps", "B/s", 50_000_000_000),
    ("25 Gbps", "B/s", 3_125_000_000),
    ("1 GiB/s", "B/s", 1_073_741_824),
    ("3.35 TB/s", "B/s", 3_350_000_000_000),
    ("8 b/s", "B/s", 1),
    ("989 TFLOP/s", "FLOP/s", 989_000_000_000_000),
    ("989 TFLOPS", "FLOP/s", 989_000_000_000_000),
    ("1 PFLOP/s", "FLOP/s", 1_000_000_000_000_000),
    ("60 GFLOP/s", "FLOP/s", 60_000_000_000),
    ("5 us", "s", 0.000_005),
    ("20 ms", "s", 0.020),
    ("4.55 us", "s", 0.000_004_55),
    ("700 ns", "s", 0.000_000_7),
    ("1 s", "s", 1),
    ("0 us", "s", 0),
]
#: Text, dimension, words of the message.
REFUSED: list[tuple[str, str, str]] = [
    ("nan GB", "B", "not a number with a unit"),
    ("inf GB", "B", "not a number with a unit"),
    ("-inf GB", "B", "not a number with a unit"),
    ("1e999 GB", "B", "not finite"),
    ("-1 GB", "B", "negative"),
    ("-5 us", "s", "negative"),
    ("", "B", "not a number with a unit"),
    ("GB", "B", "not a number with a unit"),
    ("12:30", "s", "not in s"),
    ("80", "B", "no unit"),
    ("989e12", "FLOP/s", "no unit"),
    ("5", "s", "no unit"),
    ("80 G", "B", "not in B"),
    ("80 Gb", "B", "not in B"),
    ("450 GB", "B/s", "not in B/s"),
    ("450 GB/s", "B", "not in B"),
    ("989 TFLOP", "FLOP/s", "not in FLOP/s"),
    ("5 usec", "s", "not in s"),
    ("80 mB", "B", "prefix below one"),
    ("450 mB/s", "B/s", "prefix below one"),
    ("400 mbps", "B/s", "prefix below one"),
    ("989 mFLOP/s", "FLOP/s", "prefix below one"),
    ("80 GB GB", "B", "not "),
    ("1,000 GB", "B", "not "),
]
TOKENS: list[tuple[str, int]] = [
    ("128K", 131_072),
    ("128k", 131_072),
    ("128 K", 131_072),
    ("1M", 1_048_576),
    ("1.5M", 1_572_864),
    ("0.5K", 512),
    ("1G", 1_073_741_824),
    ("1_000_000", 1_000_000),
    ("1,048,576", 1_048_576),
    ("1000000", 1_000_000),
    ("131072", 131_072),
    (" 4096 ", 4096),
    ("1024G", 1_099_511_627_776),
]
NOT_TOKENS: list[tuple[str, str]] = [
    ("1,04", "not a token count"),
    ("1,0000", "not a token count"),
    ("1,000,", "not a token count"),
    ("1,000_000", "not a token count"),
    ("1e6", "not a token count"),
    ("nan", "not a token count"),
    ("inf", "not a token count"),
    ("-5", "negative"),
    ("-1K", "negative"),
    ("1.5", "whole number"),
    ("0.3K", "whole number"),
    ("128KB", "not a token count"),
    ("128T", "not a token count"),
    ("", "not a token count"),
    ("1025G", "more than"),
]
SHOWN: list[tuple[float, str, str]] = [
    (0, "B", "0 B"),
    (0, "s", "0 s"),
    (0, "x", "0x"),
    (0, "%", "0 %"),
    (0, "token", "0"),
    (1, "B", "1.00 B"),
    (999.9, "B", "1.00 kB"),
    (999.4, "B", "999 B"),
    (1000, "B", "1.00 kB"),
    (17_179_869_184, "B", "17.2 GB"),
    (999_900_000, "B", "1.00 GB"),
    (450e9, "B/s", "450 GB/s"),
    (989e12, "FLOP/s", "989 TFLOP/s"),
    (1e-12, "s", "1.00 ps"),
    (5e-6, "s", "5.00 us"),
    (0.01099511627776, "s", "11.0 ms"),
    (1, "s", "1.00 s"),
    (99.94, "s", "99.9 s"),
    (100, "s", "100 s"),
    (999.9, "s", "1,000 s"),
    (3599, "s", "3,599 s"),
    (3600, "s", "1.00 h"),
    (5400, "s", "1.50 h"),
    (36_000_000, "s", "10,000.00 h"),
    (2.048, "x", "2.05x"),
    (0.998, "x", "0.998x"),
    (10.04, "x", "10.0x"),
    (99.9, "x", "99.9x"),
    (100, "x", "100x"),
    (12_345, "x", "12,345x"),
    (0.5039, "%", "50.4 %"),
    (1, "%", "100.0 %"),
    (16_384, "token", "16,384"),
    (1_048_576, "rank", "1,048,576"),
    (2.5, "1", "2.5"),
]


@pytest.mark.parametrize(("text", "dimension", "base"), READ, ids=str)
def test_a_quantity_is_read_in_base_units(text: str, dimension: str, base: float) -> None:
    assert parse(text, dimension) == pytest.approx(base, rel=1e-15)


@pytest.mark.parametrize(("text", "dimension", "words"), REFUSED, ids=str)
def test_a_quantity_that_could_be_misread_is_refused(text: str, dimension: str, words: str) -> None:
    with pytest.raises(UnitError, match=words) as caught:
        parse(text, dimension)
    assert "write it like" in (caught.value.hint or "")


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_the_example_in_a_hint_is_itself_read(dimension: str) -> None:
    with pytest.raises(UnitError) as caught:
        parse("80", dimension)
    hint = (caught.value.hint or "").removeprefix("write it like ")
    assert all(parse(each, dimension) > 0 for each in hint.split(" or "))


def test_a_bit_is_an_eighth_of_a_byte_under_every_prefix() -> None:
    for prefix in ("", "k", "M", "G", "T"):
        assert 8 * parse(f"3 {prefix}b/s", "B/s") == parse(f"3 {prefix}B/s", "B/s")


@pytest.mark.parametrize(("text", "tokens"), TOKENS)
def test_a_token_count_is_an_exact_integer(text: str, tokens: int) -> None:
    read = parse_tokens(text)
    assert read == tokens
    assert type(read) is int


@pytest.mark.parametrize(("text", "words"), NOT_TOKENS)
def test_a_token_count_that_could_be_misread_is_refused(text: str, words: str) -> None:
    with pytest.raises(UnitError, match=words):
        parse_tokens(text)


def test_the_most_tokens_are_read_and_one_more_is_refused() -> None:
    assert parse_tokens(str(MAX_TOKENS)) == MAX_TOKENS == 2**40
    with pytest.raises(UnitError, match="more than"):
        parse_tokens(str(MAX_TOKENS + 1))


@pytest.mark.parametrize(("value", "unit", "text"), SHOWN)
def test_a_number_is_shown_with_three_digits_and_its_unit(
    value: float, unit: str, text: str
) -> None:
    assert show(value, unit) == text


def test_what_is_shown_reads_back_within_its_three_digits() -> None:
    for value in (1.0, 12.3, 456e3, 7.89e9, 1.23e12, 9.99e14):
        assert parse(show(value, "B"), "B") == pytest.approx(value, rel=5e-3)
        assert parse(show(value, "B/s"), "B/s") == pytest.approx(value, rel=5e-3)
