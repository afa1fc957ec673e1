import contextlib

import pytest
from hypothesis import given, strategies as st

from ccctl.errors import UsageError
from probes.base import format_size, parse_rate, parse_rates, parse_seconds, parse_size, parse_sizes


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("8", 8),
        ("32K", 32 << 10),
        ("32k", 32 << 10),
        ("128M", 128 << 20),
        ("1G", 1 << 30),
        ("2T", 2 << 40),
        ("1MiB", 1 << 20),
        ("1Mi", 1 << 20),
        ("1MB", 1 << 20),
        ("1.5M", 3 << 19),
        (" 4 K ", 4096),
        ("1e3", 1000),
        ("100B", 100),
    ],
)
def test_sizes_read_as_nccl_tests_reads_them(text, size_bytes):
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize(
    "text", ["", "0", "-1", "0.3", "1.0001K", "M", "12Q", "1K1", "nan", "inf", "1e999", "1 2", "1i"]
)
def test_a_bad_size_names_the_option_and_the_text(text):
    with pytest.raises(UsageError) as caught:
        parse_size(text, "--begin")
    assert "--begin" in caught.value.message
    assert repr(text) in caught.value.message


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("50GB/s", 50e9),
        ("50GiB/s", 50.0 * (1 << 30)),
        ("400Gbit/s", 50e9),
        ("400Gb/s", 50e9),
        ("100 Mbit/s", 12.5e6),
        ("8bit/s", 1.0),
        ("1.5e3 MB/s", 1.5e9),
        ("10Gbps", 1.25e9),
        ("3B/s", 3.0),
    ],
)
def test_rates(text, rate):
    assert parse_rate(text) == pytest.approx(rate, rel=1e-12)


def test_rates_share_the_last_unit():
    assert parse_rates("200,100,50GB/s") == (200e9, 100e9, 50e9)
    assert parse_rates("1GB/s,100MB/s") == (1e9, 1e8)


@pytest.mark.parametrize(
    "text", ["", "50", "50G", "0GB/s", "-1GB/s", "50GB/m", "1,,2GB/s", "GB/s", "1e999GB/s"]
)
def test_a_bad_rate_names_the_option_and_the_text(text):
    with pytest.raises(UsageError, match="--bandwidth") as caught:
        parse_rate(text, "--bandwidth")
    assert repr(text) in caught.value.message


def test_one_rate_is_not_a_list():
    with pytest.raises(UsageError):
        parse_rate("1,2GB/s")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0.5us", 5e-7), ("20ns", 2e-8), ("3 ms", 3e-3), ("1s", 1.0), ("0", 0.0), ("2µs", 2e-6)],
)
def test_times(text, seconds):
    assert parse_seconds(text) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize("text", ["", "1", "us", "-1us", "1h", "1e999s", "1us2"])
def test_a_bad_time_names_the_option_and_the_text(text):
    with pytest.raises(UsageError, match="--alpha") as caught:
        parse_seconds(text, "--alpha")
    assert repr(text) in caught.value.message


@given(st.integers(min_value=1, max_value=1 << 44))
def test_a_formatted_size_reads_back(size_bytes):
    assert parse_size(format_size(size_bytes)) == size_bytes


NASTY = [
    "9e30",
    "1e999",
    "9" * 5000,
    "9" * 5000 + "K",
    "²",
    "٣",
    "1e-320GB/s",
    "1e400GB/s",
    "1e308s",
    "1e-300s",
    "1e" + "9" * 5000,
    "nan",
    "infGB/s",
    "",
    ",",
    "💥",
]


@pytest.mark.parametrize("text", NASTY)
@pytest.mark.parametrize("parse", [parse_size, parse_sizes, parse_rate, parse_seconds])
def test_what_is_out_of_range_is_refused_in_a_short_message(parse, text):
    with pytest.raises(UsageError, match=r"expected .*found") as caught:
        parse(text)
    assert len(caught.value.message) < 300


@given(st.text(alphabet="0123456789.eE+-kKMGTiB/bits sunmµ²٣,:nafx") | st.text())
def test_any_text_is_a_value_in_range_or_refused(text):
    for parse, low, high in (
        (parse_size, 1, 1 << 50),
        (parse_rate, 0.125, 1e18),
        (parse_seconds, 0.0, 1e9),
    ):
        with contextlib.suppress(UsageError):
            assert low <= parse(text) <= high
    with contextlib.suppress(UsageError):
        assert all(1 <= size <= 1 << 50 for size in parse_sizes(text))
