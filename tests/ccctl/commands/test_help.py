"""`ccctl help`: the same as ``--help``."""

import pytest


@pytest.mark.parametrize("words", [[], ["synth"], ["lab"], ["lab", "up"]])
def test_it_is_what_the_option_prints(run_ccctl, words):
    done = run_ccctl("help", *words)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.rstrip("\n") == run_ccctl(*words, "--help").stdout.rstrip("\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["snyth"], "No such command 'snyth'. Did you mean 'synth'?"),
        (["lab", "upp"], "No such command 'upp'"),
        (["synth", "up"], "ccctl synth has no commands of its own, found 'up'"),
    ],
)
def test_what_is_no_command_is_refused(run_ccctl, words, said):
    done = run_ccctl("help", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
