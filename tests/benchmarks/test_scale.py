"""Requests of the benchmark of scale, its fit of growth, and its report of rows that do not end."""

from dataclasses import replace

import pytest
import scale

from synth.networks.families import family


def test_every_row_has_a_name_of_its_own():
    names = [row.name for row in scale.ROWS]
    assert len(set(names)) == len(names)


def test_growth_is_the_slope_through_logarithms():
    ranks = [64, 128, 256, 1024]
    assert scale.exponent(ranks, [3e-3 * count**1.5 for count in ranks]) == pytest.approx(1.5)


def test_what_has_failed_takes_no_part():
    row = scale.Row("all_reduce", "torus:3x3", "50", 1 << 20, gone=(4,), cut_links=((0, 1),))
    asked = row.request(row.made()).surviving()
    assert 4 not in asked.network.src
    assert asked.collectives[0].members == (0, 1, 2, 3, 5, 6, 7, 8)


def test_a_number_of_chunks_cuts_the_whole_size():
    row = scale.Row("all_reduce", "ring:4", "50", 1000, chunks=3)
    asked = row.request(family("ring:4", [1e-6], [1e9]))
    assert (asked.chunks, asked.chunk_bytes, asked.size_bytes) == (3, 334, None)


def test_a_row_in_a_process_of_its_own():
    row = scale.Row("all_gather", "ring:4", "50", 1 << 20, most_s=1e9)
    found = scale.measured_apart(row, 300, 16)
    assert (found.why, found.ranks, found.links) == ("", 4, 8)
    assert 0 < found.percent <= 100
    assert found.meets(row)
    assert not found.meets(replace(row, most_s=0.0))


def test_rows_that_do_not_end_or_cannot_be_asked_for_say_so():
    row = scale.Row("all_gather", "ring:4", "50", 1 << 20)
    assert scale.measured_apart(row, 0.05, 16).why == "not within 0.05 s"
    # Periodic: a symmetric schedule would need but one link of each orbit.
    refused = scale.measured_apart(replace(row, network="switch:9999", kind="broadcast"), 300, 16)
    assert "links are more than" in refused.why
    assert not refused.meets(row)
