"""Registers of the configuration space, and what a recording keeps of it."""

import pytest
from hypothesis import given, strategies as st

from probes.sysfs import pci_config
from tests.helpers.health_machines import config


@pytest.mark.parametrize(
    ("acs", "redirects"),
    # Request redirect, completion redirect, egress control; source validation and upstream forwarding.
    [(0x04, True), (0x08, True), (0x20, True), (0x01 | 0x10, False), (0, False), (0x1D, True)],
)
def test_only_bits_that_redirect_count(acs, redirects):
    assert pci_config.redirects_peers(config(acs=acs)) is redirects


@pytest.mark.parametrize("on", [True, False])
def test_relaxed_ordering_is_a_bit_of_device_control(on):
    assert pci_config.relaxed_ordering(config(relaxed=on)) is on


def test_what_linux_hides_from_users_is_unknown_and_not_off():
    header = config(acs=0x1D)[:64]
    assert not pci_config.is_whole(header)
    assert pci_config.relaxed_ordering(header) is None
    assert pci_config.redirects_peers(header) is False
    assert pci_config.is_whole(config())


def test_a_device_without_the_capability_is_unknown():
    plain = bytearray(config())
    plain[0x06] = 0
    assert pci_config.relaxed_ordering(bytes(plain)) is None


def test_a_recorded_configuration_means_the_same_and_holds_no_serial_number():
    serial = bytes.fromhex("0123456789abcdef")
    whole = bytearray(config(acs=0x0C, serial=serial))
    # The addresses of its memory, and its subsystem.
    whole[0x10:0x28] = b"\xaa" * 0x18
    kept = pci_config.without_identity(bytes(whole))
    assert serial not in kept
    assert b"\xaa" not in kept
    assert pci_config.redirects_peers(kept)
    assert pci_config.relaxed_ordering(kept) is True
    assert pci_config.without_identity(kept) == kept


@given(st.binary(max_size=4096) | st.binary(max_size=300).map(lambda more: config(acs=4)[:0x100] + more))
def test_any_bytes_are_read_and_mean_the_same_when_recorded(content):
    kept = pci_config.without_identity(content)
    assert pci_config.is_whole(kept) == pci_config.is_whole(content)
    assert pci_config.redirects_peers(kept) == pci_config.redirects_peers(content)
    assert pci_config.relaxed_ordering(kept) == pci_config.relaxed_ordering(content)


def test_a_missing_file_is_empty(tmp_path):
    assert pci_config.read_config(tmp_path) == b""
