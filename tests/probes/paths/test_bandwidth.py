import inspect
import json
import re
from pathlib import Path

import msgspec
import pytest

from probes.base.errors import DataError, MissingInputError
from probes.paths import bandwidth

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
        ("nvlink", "sm_107", "6.0", 40.1),
        ("nvlink", "sm_55", "", 20.0),
        ("xgmi", "gfx942", "", 48.0),
        ("xgmi", "sm_90", "", 24.0),
    ],
)
def test_fabric_by_architecture(kind, arch, version, gbs):
    found = bandwidth.load().fabric(kind, arch)
    assert (found.version, found.gbs) == (version, gbs)


@pytest.mark.parametrize(
    ("raw", "gbs"),
    [
        (15.753846, 12.0),  # 16 lanes of 8 GT/s, as 8 of 16 and 4 of 32
        (3.938462, 3.0),
        (63.015385, 48.0),
        (4.0, 3.0),  # 16 lanes of 2.5 GT/s, as 8 of 5
        (8.0, 6.0),
        (0.25, 0.1875),
        (0.1, None),
        (7.0, None),
    ],
)
def test_pcie_by_its_speed_on_the_wire_alone(raw, gbs):
    found = bandwidth.load().pcie_gbs_of_wire(raw)
    assert found == (None if gbs is None else pytest.approx(gbs))


@pytest.mark.parametrize(
    ("cpu", "gbs"),
    [
        (("x86_64", "GenuineIntel", 0x4F), 6.0),
        (("x86_64", "GenuineIntel", 0x55), 10.0),
        (("x86_64", "GenuineIntel", 0x6A), 10.0),
        (("x86_64", "GenuineIntel", 0x8F), 22.0),
        (("x86_64", "GenuineIntel", 0xCF), 40.0),
        (("x86_64", "GenuineIntel", None), 6.0),
        (("x86_64", "AuthenticAMD", 17), 16.0),
        (("arm64", "", None), 6.0),
        (("ppc64le", "", None), 32.0),
        (("riscv64", "", None), None),
        (("", "", None), None),
    ],
)
def test_cpu_links_by_maker_and_model(cpu, gbs):
    assert bandwidth.load().cpu_gbs(*cpu) == gbs


def test_fabric_by_its_version_where_the_architecture_is_unknown():
    assert bandwidth.load().fabric("nvlink", "", "5.0").gbs == 40.1
    assert bandwidth.load().fabric("nvlink", "sm_90", "5.0").gbs == 20.6


def test_what_links_deliver_is_less_than_what_they_are_sold_as():
    tables = bandwidth.load()
    for generation in (*tables.nvlink.values(), *tables.xgmi.values()):
        assert 0 < generation.gbs < generation.wire_gbs


def test_every_known_device_has_a_name_and_an_architecture():
    table = json.loads((PROBES / "pci_ids.json").read_text())
    rows = msgspec.convert(table, dict[str, tuple[str, str]])
    for key, (name, arch) in rows.items():
        assert re.fullmatch(r"(10de|1002):[0-9a-f]{4}", key)
        assert name
        assert re.fullmatch(r"sm_\d+|gfx[0-9a-f]+", arch) or (name, arch) == ("NVSwitch", "")
    assert list(table) == sorted(table)


def alike(schema):
    """The schema without what versions of msgspec write differently: indented docstrings, empty defaults."""
    if isinstance(schema, list):
        return [alike(each) for each in schema]
    if not isinstance(schema, dict):
        return inspect.cleandoc(schema) if isinstance(schema, str) else schema
    return {key: alike(value) for key, value in schema.items() if (key, value) != ("default", {})}


def test_the_schema_beside_the_tables_is_theirs():
    schema = json.loads((PROBES / "bandwidth.schema.json").read_text())
    assert schema.pop("$schema").startswith("https://json-schema.org/")
    assert alike(schema) == alike(msgspec.json.schema(bandwidth.Bandwidths))


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


def test_every_generation_of_xgmi_names_its_source():
    tables = bandwidth.load()
    told = " ".join(f"{name}: {source}" for name, source in tables.sources.items())
    assert all(arch in told for arch in tables.xgmi)
    assert {"gbs", "nvlink wire_gbs, most"} <= {*tables.sources}
