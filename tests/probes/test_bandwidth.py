import json
from pathlib import Path

import msgspec
import pytest

from probes import bandwidth
from probes.errors import DataError, MissingInputError

PROBES = Path(bandwidth.__file__).parent


def test_pcie_doubles_each_generation_up_to_what_nccl_reckons_with():
    tables = bandwidth.load()
    rates = [tables.pcie_gbs(speed, 16) for speed in (2.5, 5.0, 8.0, 16.0, 32.0, 64.0)]
    assert rates == [3.0, 6.0, 12.0, 24.0, 48.0, 96.0]


@pytest.mark.parametrize(
    ("speed", "width", "gbs"),
    [(16.0, 8, 12.0), (16.0, 0, 24.0), (16.0, None, 24.0), (None, 16, None), (7.0, 16, None)],
)
def test_pcie_with_something_unknown(speed, width, gbs):
    assert bandwidth.load().pcie_gbs(speed, width) == gbs


@pytest.mark.parametrize(
    ("kind", "arch", "version", "gbs"),
    [
        ("nvlink", "sm_80", "3.0", 20.0),
        ("nvlink", "sm_90", "4.0", 20.6),
        ("nvlink", "sm_55", "", 20.0),
        ("xgmi", "gfx942", "", 48.0),
        ("xgmi", "sm_90", "", 24.0),
    ],
)
def test_fabric_by_architecture(kind, arch, version, gbs):
    found = bandwidth.load().fabric(kind, arch)
    assert (found.version, found.gbs) == (version, gbs)


def test_the_schema_beside_the_tables_is_theirs():
    schema = json.loads((PROBES / "bandwidth.schema.json").read_text())
    assert schema.pop("$schema").startswith("https://json-schema.org/")
    assert schema == msgspec.json.schema(bandwidth.Bandwidths)


def test_tables_of_ones_own_by_argument_and_by_environment(tmp_path, monkeypatch):
    changed = json.loads((PROBES / "bandwidth.json").read_text())
    changed["nvlink"]["sm_90"]["gbs"] = 25.0
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(changed))
    assert bandwidth.load(path).fabric("nvlink", "sm_90").gbs == 25.0
    monkeypatch.setenv(bandwidth.OVERRIDE, str(path))
    assert bandwidth.load().fabric("nvlink", "sm_90").gbs == 25.0
    monkeypatch.delenv(bandwidth.OVERRIDE)
    assert bandwidth.load().fabric("nvlink", "sm_90").gbs == 20.6


def test_tables_that_do_not_fit_are_refused_by_name(tmp_path):
    path = tmp_path / "mine.json"
    with pytest.raises(MissingInputError, match=r"mine\.json"):
        bandwidth.load(path)
    path.write_text('{"pcie_gbs_per_lane": {"16": "fast"}}')
    with pytest.raises(DataError, match=r"mine\.json.*pcie_gbs_per_lane"):
        bandwidth.load(path)
