import pytest
from gpu_queries import GPU, query_xml
from hypothesis import given, strategies as st

from probes.base.errors import DataError
from probes.health import ClusterHealth, GpuHealth, HostHealth, gpus_of, versions_of

BUS = "00000000:18:00.0"


def health(**changes):
    """Return the health of one GPU with changed values; "__" in a name stands for "/"."""
    values = {**GPU, **{path.replace("__", "/"): value for path, value in changes.items()}}
    (found,) = gpus_of(query_xml([(BUS, values)]))
    return found


def test_every_fact_that_the_log_has():
    assert health() == GpuHealth(
        bus_id="0000:18:00.0",
        name="NVIDIA H100 80GB HBM3",
        vbios="96.00.74.00.01",
        ecc_enabled=True,
        ecc_uncorrected=0,
        ecc_uncorrected_ever=3,
        remapped_rows=3,
        remap_pending=False,
        remap_failed=False,
        retired_pages=None,
        pcie_gts=2.5,
        pcie_width=16,
        pcie_gts_most=32.0,
        pcie_width_most=16,
        pcie_replays=0,
        throttled=(),
        sm_clock_mhz=345,
        sm_clock_most_mhz=1980,
        application_clock_mhz=1755,
        power_limit_w=600.0,
        power_limit_default_w=700.0,
        temperature_c=33,
        persistence=True,
        compute_mode="Default",
        mig=False,
        processes=None,
    )


def test_uncorrected_errors_are_summed_in_each_drivers_words():
    assert health(ecc_errors__volatile__sram_uncorrectable_secded="4").ecc_uncorrected == 4
    ampere = {"ecc_errors/volatile/sram_uncorrectable": "1", "ecc_errors/volatile/dram_uncorrectable": "2"}
    volta = {
        "ecc_errors/volatile/single_bit/total": "70",
        "ecc_errors/volatile/double_bit/device_memory": "5",
        "ecc_errors/volatile/double_bit/total": "5",
    }
    for values, expected in (
        (ampere, 3),
        (volta, 5),
        ({"ecc_errors/volatile/dram_uncorrectable": "N/A"}, None),
    ):
        (found,) = gpus_of(query_xml([(BUS, values)]))
        assert (found.ecc_uncorrected, found.ecc_uncorrected_ever) == (expected, None)


def test_pages_retired_for_either_reason_are_summed():
    place = "retired_pages__{}__retired_count"
    found = health(
        **{place.format("multiple_single_bit_retirement"): "2", place.format("double_bit_retirement"): "1"}
    )
    assert found.retired_pages == 3


@pytest.mark.parametrize(("kind", "prefix"), [("event", "event"), ("throttle", "throttle")])
def test_what_holds_clocks_down_and_idling_does_not(kind, prefix):
    values = {
        f"clocks_{kind}_reasons/clocks_{prefix}_reason_gpu_idle": "Active",
        f"clocks_{kind}_reasons/clocks_{prefix}_reason_hw_slowdown": "Active",
        f"clocks_{kind}_reasons/clocks_{prefix}_reason_sync_boost": "Not Active",
        f"clocks_{kind}_reasons/clocks_{prefix}_reason_sw_power_cap": "Active",
    }
    (found,) = gpus_of(query_xml([(BUS, values)]))
    assert found.throttled == ("hw_slowdown", "sw_power_cap")


def test_power_limits_of_drivers_before_535():
    values = {"power_readings/power_limit": "300.00 W", "power_readings/default_power_limit": "350.00 W"}
    (found,) = gpus_of(query_xml([(BUS, values)]))
    assert (found.power_limit_w, found.power_limit_default_w) == (300.0, 350.0)


@pytest.mark.parametrize(
    ("inside", "expected"),
    [
        ("\n", 0),
        ("N/A", None),
        ("<process_info><pid>1</pid></process_info><process_info><pid>2</pid></process_info>", 2),
    ],
)
def test_processes_are_counted(inside, expected):
    assert health(processes=inside).processes == expected


def test_what_a_driver_does_not_state_is_unknown():
    (found,) = gpus_of(query_xml([(BUS, dict.fromkeys(GPU, "N/A"))]))
    assert found == GpuHealth(bus_id="0000:18:00.0")


def test_versions_of_driver_and_cuda():
    assert versions_of(query_xml([(BUS, GPU)], driver="535.54.03")) == {"driver": "535.54.03", "cuda": "12.8"}
    assert versions_of(query_xml([(BUS, GPU)]).replace("cuda_version", "x").encode()) == {
        "driver": "570.86.15"
    }


def test_another_document_is_refused():
    with pytest.raises(DataError, match=r"box\.xml: expected <nvidia_smi_log>, found <system>"):
        gpus_of("<system/>", "box.xml")


@given(
    st.dictionaries(
        st.sampled_from(sorted(GPU)),
        st.sampled_from(["N/A", "Yes", "1e400 W", "9" * 40, "-5 C", "7 MHz"]) | st.text(max_size=8),
    )
)
def test_any_value_is_read_or_unknown(values):
    try:
        gpus = gpus_of(query_xml([(BUS, {**GPU, **values})]).encode(errors="replace"))
    except DataError as error:
        assert error.problems
        return
    assert list(ClusterHealth((HostHealth("box", gpus=gpus),)).problems()) == []
