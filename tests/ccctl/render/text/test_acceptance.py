"""An acceptance on a terminal: the verdict first, in lines of 80 columns; and the object of ``--json``."""

import json
from dataclasses import replace

import pytest
from certificates import CERTIFICATES, accepted, certificates, refused, remarks
from hypothesis import given

from ccctl.render.text import acceptance
from exec.acceptance import changes
from probes.base import visible


@pytest.mark.parametrize("name", CERTIFICATES)
def test_every_line_fits_on_a_terminal_of_80_columns(name):
    certificate = CERTIFICATES[name]
    since = changes(remarks(), certificate)
    assert max(map(len, acceptance.lines(certificate, 78, since, ("accepted/certificate.json",)))) <= 78


def test_the_verdict_comes_first_and_then_the_culprits_in_their_order():
    told = list(acceptance.lines(refused()))
    assert told[0] == "refused: 3 faults on 10 of 12 hosts"
    heads = [line for line in told if line[:1].isdigit()]
    assert heads == [
        "1. fault: gpu007 mlx5_2",
        "2. likely fault: gpu011 GPU 0000:3b:00.0",
        "3. fault, not confirmed: rack B to rack C",
        "4. remark: governor",
    ]
    at = told.index(heads[0])
    assert told[at + 1].startswith("   gpu007 mlx5_2 sends at 52 %")
    assert (
        told[at + 2]
        == "   cost      an all_reduce of 1 GiB takes 34 ms now, and 21 ms once it is repaired, by the model"
    )
    assert told[at + 3].startswith("   to do     Replace the cable")
    assert told[at + 4].startswith("   evidence  88 of 88 links")
    assert told[at + 5].startswith("             links to gpu007")


def test_all_that_was_measured_and_what_was_not_is_told():
    told = list(acceptance.lines(refused(), None, None, ("accepted/certificate.json",)))
    for line in (
        "  12 tested: gpu[001-012]",
        "  2 skipped: gpu[013-014]: no answer to ssh within 10 s",
        "  NVLink error counters: needs root, or nvidia-smi with administrator rights",
        "  links left out: latency of 40 of 132 pairs: the budget of 15 min was used up",
        "  accepted/certificate.json",
    ):
        assert told.count(line) == 1
    assert "all_gather 256 MiB ccctl 9.8 ms - - 92.9 % 53.1 %" in [" ".join(line.split()) for line in told]
    assert any("leave out gpu007 and gpu011" in line for line in told)


def test_what_is_not_known_has_no_heading():
    assert list(acceptance.lines(accepted())) == [
        "accepted: nothing found on 12 hosts",
        "",
        "hosts",
        "  12 tested: gpu[001-012]",
    ]


def test_a_stage_that_was_not_done_is_marked():
    stage = replace(refused().stages[0], done=False, left_out=("everything: no time was left",))
    told = list(acceptance.lines(replace(accepted(), stages=(stage,))))
    assert any(line.split() == ["hosts", "41.2", "s", "not", "done"] for line in told)
    assert "  hosts left out: everything: no time was left" in told


def test_very_many_culprits_are_counted():
    many = tuple(replace(refused().culprits[0], part=f"gpu{number}") for number in range(45))
    told = list(acceptance.lines(replace(refused(), culprits=many)))
    assert sum(line[:1].isdigit() for line in told) == 30
    assert "… and 15 more culprits: the certificate and its page have all of them" in told


def test_draw_prints_the_lines(capsys):
    acceptance.draw(refused(), changes(remarks(), refused()))
    assert capsys.readouterr().out.splitlines() == list(
        acceptance.lines(refused(), None, changes(remarks(), refused()))
    )


@given(certificates(), certificates())
def test_no_text_controls_the_terminal_or_breaks_a_line(before, certificate):
    for width in (None, 78):
        for line in acceptance.lines(certificate, width, changes(before, certificate), ("a\x1b\nb",)):
            assert visible(line) == line or len(line) > 1000
            assert "\n" not in line and "\x1b" not in line


def test_the_summary_has_units_in_its_names():
    told = acceptance.summary(refused(), changes(remarks(), refused()))
    assert (told["verdict"], told["faults"], told["remarks"], told["ranks"]) == ("refused", 3, 1, 96)
    assert told["seconds"] == pytest.approx(541.7)
    first = told["culprits"][0]
    assert first["cost"] == {
        "collective": "all_reduce",
        "size_bytes": 1 << 30,
        "with_s": 34e-3,
        "without_s": 21e-3,
        "times": pytest.approx(34 / 21),
        "algorithm": "",
        "library": "",
        "measured": False,
    }
    assert told["culprits"][2]["cost"] is None
    assert told["whole"][0]["percent_of_bound"] == pytest.approx(100 * 31 / 34)
    assert told["whole"][0]["percent_of_bought"] == pytest.approx(100 * 19 / 34)
    assert told["spares"][0]["percent_of_sound"] == pytest.approx(100 * 19 / 19.4)
    assert told["hosts_skipped"]["gpu013"] == "no answer to ssh within 10 s"
    assert [one["part"] for one in told["since"]["standing"]] == ["governor"]
    assert told["since"]["slower"][0]["ratio"] == pytest.approx(34 / 20.9)
    assert "since" not in acceptance.summary(accepted())


@given(certificates())
def test_any_summary_is_json(certificate):
    told = acceptance.summary(certificate, changes(certificate, certificate))
    assert json.loads(json.dumps(told))["verdict"] == certificate.verdict
