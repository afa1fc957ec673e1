"""Settings and identity of a machine: its serial number."""

import pytest

from probes.health import settings


@pytest.mark.parametrize(
    ("files", "number", "why"),
    [
        ({"product_serial": "ABC123\n", "board_serial": "X"}, "ABC123", ""),
        ({"board_serial": "X9"}, "X9", ""),
        ({"product_serial": "To Be Filled By O.E.M.\n"}, "", ""),
        ({"sys_vendor": "NVIDIA"}, "", "/sys/class/dmi/id/product_serial takes root"),
    ],
)
def test_the_serial_number_is_read_or_it_is_said_why_not(tmp_path, files, number, why):
    folder = tmp_path / "sys/class/dmi/id"
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_text(content)
    assert settings.serial_number(tmp_path) == (number, why)
    assert "has no SMBIOS" in settings.serial_number(tmp_path / "nowhere")[1]
