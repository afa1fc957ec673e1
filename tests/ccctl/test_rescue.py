"""Signals that end a run, the artifacts written before, and the messages about them."""

import pytest

from ccctl.errors import CannotWriteError, LostRankError
from ccctl.rescue import reason_of, rescuing

ENDS = {
    "Ctrl-C": KeyboardInterrupt(),
    "SIGTERM": SystemExit(143),
    "SIGHUP": SystemExit(129),
    "rank 2 was killed": LostRankError(["rank 2 was killed", "rank 0 waited"]),
    "a bug": ValueError("a bug\nof two lines"),
    "KeyError": KeyError(),
}


@pytest.mark.parametrize("why", ENDS)
def test_whatever_ends_the_block_what_there_is_is_rescued_and_the_end_goes_on(why):
    told = []
    with pytest.raises(type(ENDS[why])), rescuing(lambda reason: told.append(reason) or "kept"):
        raise ENDS[why]
    assert told == [why] == [reason_of(ENDS[why])]


def test_success_and_leaving_with_status_0_rescue_nothing():
    with rescuing(pytest.fail):
        pass
    with pytest.raises(SystemExit), rescuing(pytest.fail):
        raise SystemExit(0)


def test_an_error_is_told_with_what_was_kept_and_a_signal_by_its_name(capsys):
    with pytest.raises(LostRankError) as caught, rescuing(lambda _: "x.json holds 2 rows"):
        raise LostRankError("gone", hint="Nothing was written.")
    assert caught.value.hint == "x.json holds 2 rows"
    with pytest.raises(KeyboardInterrupt), rescuing(lambda _: "x.json holds 2 rows"):
        raise KeyboardInterrupt
    assert capsys.readouterr().err == "ccctl: ended by Ctrl-C\nhint: x.json holds 2 rows\n"


def test_where_nothing_can_be_written_the_first_end_still_decides(capsys):
    def full(_):
        raise CannotWriteError("x.json: No space left on device")

    with pytest.raises(LostRankError) as caught, rescuing(full):
        raise LostRankError("gone", hint="as before")
    assert caught.value.hint == "as before"
    assert "No space left" in capsys.readouterr().err
