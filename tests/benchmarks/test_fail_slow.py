"""Results that the campaign derives from the record of its job."""

import json
import math

import fail_slow


def told(tmp_path, *lines):
    path = tmp_path / "told.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return fail_slow.Told(path)


def test_iterations_that_waited_for_a_measurement_are_left_out(tmp_path):
    found = told(
        tmp_path,
        ["ran", 1.0, 0.1],
        ["measured", 1.6, {"number": 1}],
        ["ran", 1.7, 0.7],
        ["ran", 1.8, 0.1],
        ["planned", 1.85, {}],
        ["ran", 2.1, 0.3],
        ["measured", 2.6, {"number": 2}],
        ["ran", 2.7, 0.6],
    )
    assert found.median_s(0.0, 3.0) == 0.1
    assert found.median_s(1.9, 3.0) == 0.3
    # The measurement may have ended before the time that is looked at.
    assert math.isnan(found.median_s(2.65, 3.0))
    assert math.isnan(found.median_s(1.65, 1.75))


def test_iterations_between_two_moments_count(tmp_path):
    found = told(tmp_path, *(["ran", float(at), at / 10] for at in range(1, 8)))
    assert found.median_s(2.0, 5.0) == 0.4
    assert math.isnan(found.median_s(8.0, 9.0))
