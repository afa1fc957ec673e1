"""Faults in the kernel's log, in the forms that kernels and drivers of several years write."""

import pytest
from hypothesis import given, strategies as st

from probes.health import KernelEvent, kernel_events
from probes.health.kernel_log import read_kernel_log

LINES = [
    "[  12.345678] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.195.03",
    "[ 100.1] NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus",
    "Jan 02 03:04:05 gpu17 kernel: NVRM: Xid (PCI:0000:3b:00): 31, pid=4711, name=python, Ch 1b, MMU Fault",
    "kern  :warn  : 2026-01-25T10:34:54 NVRM: Xid (PCI:0000:3b:00): 31, pid=4712, name=python, Ch 3, MMU",
]


def events(*lines):
    return [(one.kind, one.device, one.code, one.text, one.count) for one in kernel_events("\n".join(lines))]


def test_xids_are_counted_by_device_and_code_without_the_names_of_processes():
    assert events(*LINES) == [
        ("xid", "0000:3b:00.0", 79, "GPU has fallen off the bus", 1),
        ("xid", "0000:3b:00.0", 31, "Ch 1b, MMU Fault", 2),
    ]


@pytest.mark.parametrize(
    ("line", "device", "code", "text"),
    [
        ("NVRM: Xid (0000:03:00): 14, Channel 00000001", "0000:03:00.0", 14, "Channel 00000001"),
        ("NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained", "0000:01:00.0", 94, "Contained"),
        ("NVRM: Xid (PCI:0008:01:00.0): 119, Timeout after 6s", "0008:01:00.0", 119, "Timeout after 6s"),
        ("NVRM: Xid (PCI:0000:01:00): 62", "0000:01:00.0", 62, ""),
        ("NVRM: Xid (PCI:00000000:01:00): 63, pid=1896, Row Remapper", "0000:01:00.0", 63, "Row Remapper"),
    ],
)
def test_every_form_of_an_xid_is_read(line, device, code, text):
    assert events(f"[1.0] {line}") == [("xid", device, code, text, 1)]


def test_an_event_of_a_switch_is_counted_once_for_its_three_lines():
    head = "nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 20034"
    assert events(
        f"{head}, Data {{0x0000002b, 0x0000002b}}",
        f"{head}, Fatal, Link 30 LTSSM Fault Up",
        f"{head}, Severity 1 Engine instance 30 Sub-engine instance 00",
    ) == [("sxid", "0000:04:00.0", 20034, "Fatal, Link 30 LTSSM Fault Up", 1)]


def test_fatal_and_harmless_events_of_one_code_stay_apart():
    head = "NVRM: Xid (PCI:0000:01:00): 149,"
    found = events(f"{head} NETIR_LINK_EVT Nonfatal XC0", f"{head} NETIR_LINK_EVT Fatal XC0")
    assert [one[3] for one in found] == ["NETIR_LINK_EVT Nonfatal XC0", "NETIR_LINK_EVT Fatal XC0"]


def test_pcie_errors_are_counted_for_the_device_that_had_them():
    port, nic = "pcieport 0000:40:01.1", "mlx5_core 0000:41:00.0"
    assert events(
        f"{port}: AER: Multiple Corrected error received: 0000:41:00.0",
        f"{nic}: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
        f"{nic}:   device [15b3:1021] error status/mask=00000001/00002000",
        f"{port}: AER: Correctable error message received from 0000:41:00.0",
        f"{nic}: AER: PCIe Bus Error: severity=Correctable, type=Data Link Layer, (Transmitter ID)",
        f"{port}: AER: Uncorrected (Fatal) error received: 0000:42:00.0",
        f"{port}: AER: Uncorrectable (Non-Fatal) error message received from 0000:43:00.0",
    ) == [
        ("aer", "0000:41:00.0", 0, "corrected, Physical Layer", 2),
        ("aer", "0000:42:00.0", 0, "fatal", 1),
        ("aer", "0000:43:00.0", 0, "non-fatal", 1),
    ]


def test_machine_checks_are_told_from_the_notices_of_the_start():
    assert events(
        "mce: CPU supports 32 MCE banks",
        "EDAC MC: Ver: 3.0.0",
        "EDAC MC0: Giving out device to module i10nm_edac controller",
        "mce: [Hardware Error]: Machine check events logged",
        "EDAC MC1: 1 CE memory read error on CPU_SrcID#0_MC#1_Chan#0_DIMM#0 (channel:0)",
        "{1}[Hardware Error]: event severity: fatal",
    ) == [
        ("mce", "", 0, "corrected: Machine check events logged", 1),
        (
            "mce",
            "MC1",
            0,
            "corrected: MC1: 1 CE memory read error on CPU_SrcID#0_MC#1_Chan#0_DIMM#0 (channel:0)",
            1,
        ),
        ("mce", "", 0, "uncorrected: event severity: fatal", 1),
    ]


def test_the_text_of_an_event_cannot_steer_a_terminal():
    (event,) = kernel_events("NVRM: Xid (PCI:0000:01:00): 62, \x1b[31mred " + "x" * 5000)
    assert "\x1b" not in event.text
    assert len(event.text) < 400


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                [
                    "NVRM: Xid (PCI:",
                    "SXid (PCI:0000:04:00.0): 1",
                    "PCIe Bus Error: severity=",
                    "mce: [Hardware Error]: ",
                    "AER: Corrected error received: 0000:00:01.0",
                    "EDAC MC0: 1 CE ",
                    "",
                ]
            ),
            st.text(max_size=40),
        ),
        max_size=12,
    )
)
def test_any_log_is_read(parts):
    for event in kernel_events("\n".join(a + b for a, b in parts)):
        assert isinstance(event, KernelEvent)
        assert event.count >= 1


def test_the_log_of_this_machine_is_read_or_refused():
    try:
        text = read_kernel_log()
    except OSError as error:
        assert error.strerror
    else:
        assert ";" not in text.partition("\n")[0][:5]
