"""`ccctl doctor`: what this machine has and lacks."""

from __future__ import annotations

import dataclasses

from ccctl import console
from ccctl.arguments import Json, Quiet, Verbose
from ccctl.errors import UnavailableError

__all__ = ["EXAMPLES", "doctor"]

EXAMPLES = (
    ("ccctl doctor", "look at everything that the stages need"),
    ("ccctl doctor --json", "the same as one object"),
)


def doctor(json: Json = False, quiet: Quiet = False, verbose: Verbose = 0) -> None:
    """List what this machine has and lacks for each stage.

    Starts two ranks over MPI. Exit status 0: the pipeline works on CPUs; 69: something that it needs is
    missing. A note names something that only some commands need. -q prints only what is missing.
    """
    from ccctl.doctor_checks import examine

    checks = list(examine())
    missing = [check.name for check in checks if check.state == "missing"]
    if json:
        console.summary({"works": not missing, "checks": [dataclasses.asdict(check) for check in checks]})
    elif not quiet:
        rows = [(check.name, check.state, check.found, check.hint) for check in checks]
        console.table(("what", "state", "found", "hint"), rows)
        if not missing:
            console.data("nothing is missing for the pipeline on CPUs; a note concerns only some commands")
    if missing:
        raise UnavailableError(f"missing for the pipeline on CPUs: {', '.join(missing)}")
    console.next_step("ccctl detect")
