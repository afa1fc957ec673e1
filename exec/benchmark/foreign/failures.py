"""The failure that the log of a run reports; wrong results in the log take precedence."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from probes.base import DataError, WrongResultsError

__all__ = ["failure_in", "wrong_first"]

_FAILURE = re.compile(
    r"^.*(?:"
    r"\b(?:Test|NCCL|RCCL|CUDA|HIP) (?:\w+ )?(?:failure|error)\b"
    r"|MPI_ABORT was invoked|Abort\([0-9]+\) on node"
    r"|noticed that process rank|BAD TERMINATION OF|EXITED WITH EXIT CODE|exited on signal"
    r"|srun: error:|slurmstepd: error:|Segmentation fault|Bus error|Out Of Memory"
    r").*$",
    re.MULTILINE,
)
_MOST_CHARACTERS = 160


def failure_in(text: str) -> str:
    """Return the first line that reports a failure, shortened if it is long; empty without one."""
    found = _FAILURE.search(text)
    return found[0].strip()[:_MOST_CHARACTERS] if found else ""


@contextmanager
def wrong_first(source: str, wrong: Sequence[str]) -> Iterator[None]:
    """Raise WrongResultsError instead of a DataError if the log also holds wrong results."""
    try:
        yield
    except DataError as error:
        if not wrong:
            raise
        raise WrongResultsError(source, [*wrong, *error.problems], hint=error.hint) from error
