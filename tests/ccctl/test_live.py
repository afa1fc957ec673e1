"""The live view of long commands on a real pseudo-terminal, and who is waited for."""

import re

import pytest
from terminal import Terminal, press, resize, run_on_terminal

from ccctl import console
from ccctl.launching import RankDisplay
from exec.launcher.protocol import Heartbeat, Lost

# A view that grows and changes until it is interrupted or done.
SCRIPT = """
import time
from ccctl import console
shown = []
def below():
    return [f"link {number}: " + "x" * 90 for number in range(len(shown))]
with console.progress("work", 30.0, below) as bar:
    for number in range(30):
        shown.append(number)
        bar.update(number, "of hosts with long names " * 3)
        time.sleep(0.05)
print("done")
"""
# Rows that come while a bar with lines below it is drawn; some are wider than the terminal.
ROWS = """
import time
from ccctl import console
with console.progress("work", 10.0, lambda: ["4 ranks", "rank 1 waits", "rank 2 waits"]) as bar:
    for number in range(10):
        time.sleep(0.15)
        console.data(f"row {number} " + "x" * 100 * (number % 2) + " end")
        bar.update(number)
print("done")
"""
SIZES = (1 << 20, 1 << 22)
COLOURED = re.compile(r"\x1b\[[0-9;]*3[0-7]m")


def on_terminal(columns, **more):
    return run_on_terminal([SCRIPT], columns, program=("-c",), **more)


def widest(text):
    return max(map(len, Terminal.lines(text)))


@pytest.mark.parametrize("columns", [60, 100])
def test_no_line_is_wider_than_the_terminal_and_the_view_goes_when_it_is_done(columns):
    done = on_terminal(columns)
    assert done.returncode == 0
    assert "link 3: xxx" in done.seen
    assert widest(done.seen) <= columns
    # The cursor is shown again, and what comes then stands on a line of its own.
    assert done.seen.rindex("\x1b[?25h") > done.seen.rindex("\x1b[?25l")
    assert Terminal.lines(done.seen)[-1] == "done"
    # No more lines than the terminal has: 24, less the bar.
    assert "link 25:" not in done.seen


def test_it_follows_when_the_terminal_becomes_narrower():
    done = on_terminal(100, once="link 2:", act=lambda terminal: resize(terminal, 60))
    assert done.returncode == 0
    assert widest(done.before) > 60
    # One more drawing may have been under way.
    lines = Terminal.lines(done.after)
    assert max(map(len, lines[len(lines) // 2 :])) <= 60


def test_rows_that_come_while_a_bar_is_drawn_stay_whole():
    lines = run_on_terminal([ROWS], program=("-c",)).screen()
    text = "".join(lines)
    for number in range(10):
        assert f"row {number} " + "x" * 100 * (number % 2) + " end" in text, lines
    assert lines[-1] == "done"
    assert len(lines) == 10 + 5 + 1


def test_ctrl_c_leaves_the_terminal_clean():
    done = on_terminal(80, once="link 2:", act=press("\x03"))
    assert done.returncode != 0
    assert done.seen.rindex("\x1b[?25h") > done.seen.rindex("\x1b[?25l")


def test_no_color_is_obeyed():
    assert COLOURED.search(on_terminal(80).seen)
    assert not COLOURED.search(on_terminal(80, NO_COLOR="1").seen)


def test_a_dumb_terminal_is_left_alone():
    assert "\x1b" not in on_terminal(80, TERM="dumb").seen


# The next test sees the same links on the same terminal.
@pytest.mark.long
@pytest.mark.mpi
def test_a_profile_shows_its_links_while_they_are_measured(tmp_path):
    done = run_on_terminal(["profile", "-n", "2", "-o", "p.json"], 60, cwd=tmp_path)
    assert done.returncode == 0
    assert "of 2 links" in done.seen, Terminal.lines(done.seen)[-20:]
    assert "2 ranks" in done.seen
    assert widest(done.seen.partition("\x1b[?25h")[0]) <= 60
    assert (tmp_path / "p.json").is_file()


@pytest.mark.mpi
def test_a_profile_that_is_interrupted_leaves_the_terminal_clean(tmp_path):
    done = run_on_terminal(
        ["profile", "-n", "2", "-o", "p.json"], 60, cwd=tmp_path, once="of 2 links", act=press("\x03")
    )
    assert done.returncode == 130, Terminal.lines(done.after)
    assert "2 ranks" in done.seen, Terminal.lines(done.seen)[-20:]
    assert widest(done.before) <= 60
    assert done.seen.rindex("\x1b[?25h") > done.seen.rindex("\x1b[?25l")
    assert Terminal.lines(done.seen)[-1] == "ccctl: interrupted"


@pytest.mark.long
@pytest.mark.mpi
def test_q_draws_nothing(tmp_path):
    done = run_on_terminal(["profile", "--quick", "-n", "2", "-q", "-o", "p.json"], cwd=tmp_path)
    assert (done.returncode, done.seen) == (0, "")


@pytest.mark.parametrize(
    ("output", "following"),
    [
        ([], "ccctl training averaging dgx-a100:2 --racks 0-7/8-15 -o groups.json"),
        (["-o", "g 1.json"], "ccctl verify 'g 1.json'"),
    ],
)
def test_the_next_command_is_one_that_works(tmp_path, output, following):
    words = ["training", "averaging", "dgx-a100:2", "--racks", "0-7/8-15"]
    done = run_on_terminal([*words, *output], cwd=tmp_path)
    assert done.returncode == 0, done.screen()
    assert done.screen()[-1] == f"next: {following}"


def test_without_a_terminal_a_plain_line_comes_now_and_then(capsys, monkeypatch):
    monkeypatch.setattr(console, "_PLAIN_S", 0.0)
    with console.progress("work", 2.0, lambda: ["never asked for"]) as bar:
        bar.update(1.0, "half")
    assert capsys.readouterr().err == "work: 50 % done, half\n"


def test_who_is_waited_for_comes_first():
    ranks = RankDisplay()
    assert ranks.lines() == []
    ranks.heard(0, "a", Heartbeat(1, 4, "round 1"))
    for rank in (1, 2):
        ranks.heard(rank, "b", Heartbeat(1, 4, "round 1", 0, "train 2"))
    ranks.heard(3, "c", Heartbeat(1, 4, "round 1", -1, "round 2"))
    assert ranks.lines() == [
        "4 ranks, 2 waiting for another",
        "2 ranks wait for rank 0 on a: train 2",
        "rank 3, with all others: round 2",
    ]
    ranks.lost(Lost(3, "was killed"))
    assert ranks.lines()[0] == "3 ranks, 2 waiting for another"
    assert ranks.lines()[-1] == "rank 3 is lost: was killed"


def test_ranks_that_are_at_work_with_each_other_share_a_line():
    ranks = RankDisplay()
    for rank, peer, step in ((0, 1, "train 2"), (1, 0, "trains"), (2, 0, "trains"), (3, 4, ""), (4, 3, "")):
        ranks.heard(rank, f"gpu{rank // 2}", Heartbeat(1, 4, "", peer, step))
    assert ranks.lines() == [
        "5 ranks, 1 waiting for another",
        "rank 2 waits for rank 0 on gpu0: trains",
        "ranks 0 and 1, with each other on gpu0: train 2",
        "ranks 3 and 4, with each other on gpu1 and gpu2: ",
    ]
    for rank in range(12):
        ranks.heard(rank, "gpu0", Heartbeat(1, 4, "", rank ^ 1, "trains"))
    assert ranks.lines()[0] == "12 ranks, 0 waiting for another"
    assert ranks.lines()[-1] == "2 more pairs, with each other"


@pytest.mark.parametrize(("gbs", "told"), [(0.0119, True), (5.0, False)])
def test_small_messages_tell_the_rate_of_slow_links_alone(gbs, told):
    from ccctl.runs.links_live import LinksLive
    from probes.sampling.packet_trains import Trains
    from probes.sampling.samples import Samples

    live = LinksLive()
    live.heard(Samples(trains={(0, 1): Trains({size: [size / gbs / 1e9] for size in (4096, 8192)}, [1e-10])}))
    assert any("0 → 1" in line and str(gbs) in line for line in live.lines()) == told


def test_links_are_told_slowest_first():
    from ccctl.runs.links_live import LinksLive
    from probes.profiling.task import Begun
    from probes.sampling.packet_trains import Trains
    from probes.sampling.samples import Place, Samples

    live = LinksLive()
    assert live.lines() == []
    live.heard(Begun((Place("a", 1), Place("b", 1)), "test", 2))

    def trains(gbs):
        """A message takes 100 us and what its bytes need; each size once at half the rate, too."""
        return Trains(
            {size: [1e-4 + 2 * size / gbs / 1e9, 1e-4 + size / gbs / 1e9] for size in SIZES}, [1e-9]
        )

    live.heard(Samples(trains={(0, 1): trains(2.0)}))
    live.heard(Samples(trains={(1, 0): trains(1.0)}))
    live.heard(Samples(trains={(1, 0): Trains({SIZES[0]: [1.0]}, [1e-9])}))
    head, _, first, second = live.lines()
    assert head.startswith("2 of 2 links, median of their best rates 1.5 GB/s")
    assert first.split()[:5] == ["slowest", "1", "→", "0", "1"] and first.endswith("b → a")
    assert second.split()[3] == "2"
