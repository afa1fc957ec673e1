"""Metrics files for the textfile collector of Prometheus' node exporter, replaced at the end of each run.

The file is written even if the run fails. ``ccctl_exit_code`` and the time of the last success, which a
failed run keeps, tell a failed run from a healthy one.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ccctl import console
from ccctl.artifacts import write_atomically
from ccctl.errors import INTERNAL, INTERRUPTED, CannotWriteError, CcctlError, FoundProblem, exit_status
from probes.base import visible
from probes.files import read_text

if TYPE_CHECKING:
    from ccctl.watch import Found, WatchOutcome
    from probes.link_costs import Profile

__all__ = ["Exposition", "add_hosts", "add_profile", "add_watch", "exposed"]

_SUCCESS = "ccctl_last_success_timestamp_seconds"
_WORLD_READABLE = 0o644
# The most characters of a label.
_MOST_LABEL = 255
# With more links than this, a watch exports hosts instead, as Prometheus keeps a series for each link.
_MOST_LINKS = 1024


@dataclass
class _Family:
    kind: str
    help: str
    samples: list[str] = field(default_factory=list)


class Exposition:
    """Samples grouped by name, each name with one HELP and one TYPE line."""

    def __init__(self) -> None:
        self._families: dict[str, _Family] = {}

    def add(self, name: str, meaning: str, value: float, **labels: str) -> None:
        """Add one sample of a gauge."""
        named = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        sample = f"{name}{{{named}}} {value!r}" if named else f"{name} {value!r}"
        self._families.setdefault(name, _Family("gauge", meaning)).samples.append(sample)

    def render(self) -> str:
        """Return the text format that node_exporter reads."""
        lines = []
        for name, family in self._families.items():
            lines += [f"# HELP {name} {family.help}", f"# TYPE {name} {family.kind}", *family.samples]
        return "\n".join(lines) + "\n"


def add_profile(exposition: Exposition, profile: Profile) -> None:
    """Add the bandwidth and latency of each link, and the number of findings."""
    places: list[str] = []
    for entry in profile.ranks:
        local = sum(other.host == entry.host for other in profile.ranks[: entry.rank])
        places.append(f"{entry.host}:{local}")
    links = profile.links
    columns = (
        ("ccctl_link_bandwidth_bytes_per_second", "What the link can carry.", 1 / links.beta_s_per_byte),
        (
            "ccctl_link_bandwidth_median_bytes_per_second",
            "What the link carried in the middle of the samples.",
            1 / links.beta_median_s_per_byte,
        ),
        ("ccctl_link_latency_seconds", "The time in flight of the smallest message.", links.alpha_s),
    )
    for name, meaning, values in columns:
        for src, dst, value in zip(links.src.tolist(), links.dst.tolist(), values.tolist(), strict=True):
            kind = "host" if profile.ranks[src].host == profile.ranks[dst].host else "network"
            exposition.add(name, meaning, value, src=places[src], dst=places[dst], kind=kind)
    _add_segments(exposition, profile)
    exposition.add("ccctl_profile_ranks", "How many ranks were measured.", len(profile.ranks))
    exposition.add("ccctl_profile_findings", "How many findings the profile has.", len(profile.findings))
    exposition.add("ccctl_profile_duration_seconds", "How long the measurement took.", profile.seconds)


def _add_segments(exposition: Exposition, profile: Profile) -> None:
    """Add the share of TCP segments that each host retransmitted."""
    meaning = "The share of TCP segments of the host that were retransmitted while links were measured."
    for one in profile.segments:
        exposition.add("ccctl_host_retransmitted_ratio", meaning, one.share, host=one.host)


def add_hosts(exposition: Exposition, profile: Profile) -> None:
    """Add the median sending and receiving bandwidth of each host's links."""
    import numpy as np

    links = profile.links
    host = np.array([entry.host for entry in profile.ranks])
    src, dst = host[links.src], host[links.dst]
    for name, meaning, ends in (
        ("ccctl_host_egress_bytes_per_second", "What a link from the host carries, in the middle.", src),
        ("ccctl_host_ingress_bytes_per_second", "What a link to the host carries, in the middle.", dst),
    ):
        for one in dict.fromkeys(host.tolist()):
            mine = (ends == one) & (src != dst)
            if mine.any():
                exposition.add(name, meaning, float(1 / np.median(links.beta_s_per_byte[mine])), host=one)
    _add_segments(exposition, profile)


def add_watch(exposition: Exposition, found: Found, outcome: WatchOutcome, baseline_s: float) -> None:
    """Add the findings and the decision of a watch run; with very many links, only figures by host."""
    if len(found.now.links.src) > _MOST_LINKS:
        add_hosts(exposition, found.now)
    else:
        add_profile(exposition, found.now)
    verdict, plan = found.verdict, outcome.plan
    worst = max((one.change.times for one in found.standing), default=1.0)
    gauges = (
        ("drifts", "How much is worse than the baseline.", len(found.standing) + len(verdict.drift.gone)),
        ("recovered", "How much has recovered since the last run.", len(verdict.recovered)),
        ("worst_ratio", "What is left of the worst link, as a share of the baseline.", 1 / worst),
        ("links_compared", "How many links were compared with the baseline.", verdict.drift.compared),
        (
            "links_unknown",
            "How many links were not measured lately, or not since the network changed.",
            int((~outcome.history.known()).sum()),
        ),
        ("runs", "How many runs the history holds.", outcome.history.runs),
        (
            "schedule_replaced",
            "Whether this run changed the current schedule.",
            int(outcome.adopted is not None),
        ),
        ("predicted_gain_ratio", "How many times as fast that made it.", plan.gain if plan else 1.0),
        ("run_timestamp_seconds", "When this run measured.", float(outcome.history.at_s[-1])),
    )
    for name, meaning, value in gauges:
        exposition.add(f"ccctl_watch_{name}", meaning, value)
    predicted = "What the given schedule is predicted to take."
    for network, value in (("baseline", baseline_s), ("now", found.now_s)):
        exposition.add("ccctl_watch_predicted_seconds", predicted, value, network=network)


@contextmanager
def exposed(path: str | None, command: str) -> Iterator[Exposition]:
    """Yield an exposition, and write it to ``path`` when the block ends or fails."""
    found = Exposition()
    try:
        yield found
    except BaseException as error:
        status = _status(error)
        # Inside mpirun every rank but the first exits with status 0 here, and must not write the file.
        if path is not None and status != 0:
            try:
                _write(path, found, command, status, done=isinstance(error, FoundProblem))
            except CannotWriteError as failed:
                console.error(failed.message, failed.hint)
        raise
    if path is not None:
        _write(path, found, command, 0, done=True)


def _write(path: str, found: Exposition, command: str, status: int, *, done: bool) -> None:
    success = time.time() if done else _last_success(path, command)
    if success is not None:
        found.add(
            _SUCCESS, "When the command last did all its work, findings or not.", success, command=command
        )
    found.add("ccctl_exit_code", "How the command ended: 0 well, 1 with findings.", status, command=command)
    write_atomically(Path(path), found.render().encode(), _WORLD_READABLE)


def _last_success(path: str, command: str) -> float | None:
    try:
        before = read_text(path)
    except CcctlError:
        return None
    match = re.search(rf'^{_SUCCESS}\{{command="{command}"\}} ([0-9.e+]+)$', before, re.MULTILINE)
    return float(match[1]) if match else None


def _status(error: BaseException) -> int:
    if isinstance(error, CcctlError):
        return exit_status(error)
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else 0
    return INTERRUPTED if isinstance(error, KeyboardInterrupt) else INTERNAL


def _escaped(text: str) -> str:
    return visible(text, _MOST_LABEL).replace("\\", r"\\").replace('"', r"\"")
