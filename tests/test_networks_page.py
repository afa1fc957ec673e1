"""docs/reference/networks.md has every family, and every machine with its rates and sources."""

import json
import re
from importlib.resources import files
from pathlib import Path

import pytest

from synth.networks import names, pod_aliases, pod_names

PAGE = (Path(__file__).parents[1] / "docs" / "reference" / "networks.md").read_text()
TABLE = json.loads(files("synth.networks").joinpath("dgx.json").read_text("utf-8"))


def test_every_family_is_there():
    assert all(re.search(rf"`{name}[:`]", PAGE) for name in names())


@pytest.mark.parametrize("name", pod_names())
def test_every_machine_is_there_with_its_rates(name):
    values = TABLE[name]
    (row,) = (line for line in PAGE.splitlines() if line.startswith(f"| `{name}` |") and "×" in line)
    _, _, also, title, rate, nics, _ = (cell.strip() for cell in row.split("|"))
    assert re.findall(r"`(.*?)`", also) == values.get("aliases", [])
    assert title == values["title"]
    if values["gpus"] > 1:
        assert float(rate.removesuffix(" a link")) == values["link_gbs"]
        assert rate.endswith("a link") == bool(values["links"])
    assert nics == f"{values['nics']} × {8 * values['nic_gbs']:g} Gbit/s"


@pytest.mark.parametrize("name", [name for name in pod_names() if "source" in TABLE[name]])
def test_sources_and_estimates_are_those_of_the_table(name):
    (line,) = (line for line in PAGE.splitlines() if line.startswith(f"- `{name}`: "))
    assert re.findall(r"\]\((\S+?)\)", line) == TABLE[name]["source"]
    assert line.partition(" *Estimate:* ")[2] == TABLE[name].get("estimate", "")


def test_other_names_are_there():
    assert all(f"`{alias}`" in PAGE for alias in pod_aliases())


@pytest.mark.parametrize("name", pod_names())
def test_the_multiprocessors_of_every_gpu_are_those_of_the_table(name):
    values = TABLE[name]
    gpu = "MI250X" if name == "mi250" else values["title"].split()[1].rstrip(",")
    section = PAGE.partition("### Multiprocessors")[2].partition("## Rails")[0]
    rows = [
        [cell.strip() for cell in row.split("|")[1:3]] for row in section.splitlines() if row.startswith("|")
    ]
    (models, counts) = next(
        row for row in rows if gpu in [one.partition(" (")[0].strip() for one in row[0].split(",")]
    )
    each = counts.split(",")
    place = [one.partition(" (")[0].strip() for one in models.split(",")].index(gpu)
    assert int(each[place if len(each) > 1 else 0]) == values["multiprocessors"]
