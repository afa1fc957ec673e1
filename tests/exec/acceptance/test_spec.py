"""Offers in one line."""

import pytest
from hypothesis import given, strategies as st

from exec.acceptance import GOODPUT, bought
from probes.base import UsageError, format_rate

GBIT = 125e6


@pytest.mark.parametrize(
    ("text", "nics", "gbit", "inside_gbs"),
    [
        # The delivered NVLink rate of H100 is 18 links of 20.6 GB/s, that of A100 12 of 20 GB/s.
        ("dgx-h100", 8, 400, 370.8),
        ("DGX_H100/8x400", 8, 400, 370.8),
        ("dgx-a100/4x100", 4, 100, 240.0),
        ("hgx-b200/8x400", 8, 400, 721.8),
        ("mi300x", 8, 400, 48.0),
        # Not all pairs of DGX-1 have a link.
        ("dgx-1", 4, 100, None),
        ("8x400", 8, 400, None),
        ("8X400G", 8, 400, None),
        ("2 x 200Gbit/s", 2, 200, None),
        ("400GBIT/S", 1, 400, None),
        ("50GB/s", 1, 400, None),
        ("100Mbps", 1, 0.1, None),
    ],
)
def test_machines_and_bare_rates(text, nics, gbit, inside_gbs):
    found = bought(text)
    assert (found.name, found.nics) == (text, nics)
    assert found.nic_bytes_per_s == pytest.approx(gbit * GBIT)
    assert found.inside_bytes_per_s == (None if inside_gbs is None else pytest.approx(inside_gbs * 1e9))
    assert found.latency_s is None


def test_latency_and_fabric_follow_commas():
    found = bought("100Mbit/s, 50us")
    assert (found.latency_s, found.goodput) == (pytest.approx(50e-6), GOODPUT["tcp"])
    found = bought("dgx-h100/8x400,infiniband,2us")
    assert (found.latency_s, found.goodput) == (pytest.approx(2e-6), GOODPUT["infiniband"])


def test_payload_is_what_headers_leave():
    # 1448 of 1538 bytes, 8948 of 9038, 4096 of 4178, 4096 of 4122.
    shares = {name: round(share, 4) for name, share in GOODPUT.items()}
    assert shares == {"tcp": 0.9415, "tcp9000": 0.99, "roce": 0.9804, "infiniband": 0.9937}
    assert bought("400Gbit/s").goodput == GOODPUT["roce"]
    assert bought("25Gbit/s").goodput == GOODPUT["tcp"]


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ("dgx-h10", "no machine 'dgx-h10'", "did you mean 'dgx-h100'"),
        ("cray-1", "no machine 'cray-1'", "known: dgx-1,"),
        ("hgx-b200", "without NICs", "hgx-b200/8x400"),
        ("dgx-h100:4", "without a number of hosts", ""),
        ("dgx-h100/9x400", "up to 8 NICs", ""),
        ("33x400", "1 to 32 NICs", ""),
        ("8x9999", "100Mbit/s to 6.4Tbit/s", ""),
        ("400", "a rate with its unit", "8x400"),
        ("", "a rate with its unit", "8x400"),
        ("8x", "a rate with its unit", "8x400"),
        ("100Mbit/s,fast", "a latency such as 50us or a fabric (tcp", ""),
        ("100Mbit/s,1us,2us", "each once", ""),
        ("100Mbit/s,0s", "expected a time > 0", ""),
    ],
)
def test_anything_else_is_refused_with_what_is_known(text, said, hint):
    with pytest.raises(UsageError) as refused:
        bought(text)
    assert said in refused.value.message
    assert hint in refused.value.hint


@given(st.floats(0.1, 6400).map(lambda gbit: float(f"{gbit:.6g}")), st.integers(1, 32))
def test_a_written_rate_is_read_back(gbit, nics):
    assert bought(f"{nics}x{format_rate(gbit * GBIT)}").nic_bytes_per_s == pytest.approx(gbit * GBIT)


@given(st.text(max_size=40) | st.from_regex(r"[dh]gx-[a-z0-9]{0,4}/?[0-9x.]{0,6}(,[0-9a-z]{0,5})?"))
def test_no_text_crashes(text):
    try:
        found = bought(text)
    except UsageError:
        return
    assert found.nic_bytes_per_s > 0
    assert 0 < found.goodput < 1
