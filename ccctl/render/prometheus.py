"""Metrics files for the textfile collector of Prometheus' node exporter, replaced at the end of each run.

The file is written even if the run fails. Two metrics tell a failed run from a healthy one:
``ccctl_exit_code``, and the time of the last success, which a failed run leaves as it was.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ccctl import console
from ccctl.artifacts import write_atomically
from ccctl.errors import INTERNAL, INTERRUPTED, CannotWriteError, CcctlError, FoundProblem, exit_status
from probes.base import visible
from probes.files import read_text

if TYPE_CHECKING:
    from ccctl.watch import WatchFindings, WatchOutcome
    from probes.link_costs import Profile

__all__ = ["Exposition", "add_hosts", "add_profile", "add_watch", "exposed"]

_SUCCESS = "ccctl_last_success_timestamp_seconds"
# The node exporter, which reads the file, usually runs as another user.
_WORLD_READABLE = 0o644
# The most characters of a label.
_MOST_LABEL = 255
# With more links than this, a watch exports hosts instead, as Prometheus keeps a series for each link.
_MOST_LINKS = 1024


class Exposition:
    """Samples of gauges grouped by name, each name with one HELP and one TYPE line."""

    def __init__(self) -> None:
        self._gauges: dict[str, tuple[str, dict[str, float]]] = {}

    def add(self, name: str, meaning: str, value: float, **labels: str) -> None:
        """Add one sample, or replace a sample with the same labels: the collector refuses two of them."""
        named = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        series = f"{name}{{{named}}}" if named else name
        self._gauges.setdefault(name, (meaning, {}))[1][series] = value

    def render(self) -> str:
        """Return the text format that node_exporter reads."""
        lines = []
        for name, (meaning, samples) in self._gauges.items():
            lines += [f"# HELP {name} {meaning}", f"# TYPE {name} gauge"]
            lines += [f"{series} {value!r}" for series, value in samples.items()]
        return "\n".join(lines) + "\n"


def add_profile(exposition: Exposition, profile: Profile) -> None:
    """Add the bandwidth and latency of each link, and the number of findings."""
    hosts = [entry.host for entry in profile.ranks]
    places = [f"{host}:{hosts[:rank].count(host)}" for rank, host in enumerate(hosts)]
    links = profile.links
    for name, meaning, values in (
        ("bandwidth_bytes_per_second", "Bandwidth of the link.", 1 / links.beta_s_per_byte),
        (
            "bandwidth_median_bytes_per_second",
            "Median of the bandwidths that the samples of the link had.",
            1 / links.beta_median_s_per_byte,
        ),
        ("latency_seconds", "The time in flight of the smallest message.", links.alpha_s),
    ):
        for src, dst, value in zip(links.src.tolist(), links.dst.tolist(), values.tolist(), strict=True):
            kind = "host" if hosts[src] == hosts[dst] else "network"
            ends = {"src": places[src], "dst": places[dst], "kind": kind}
            exposition.add(f"ccctl_link_{name}", meaning, value, **ends)
    _add_segments(exposition, profile)
    exposition.add("ccctl_profile_ranks", "Number of ranks that were measured.", len(profile.ranks))
    exposition.add("ccctl_profile_findings", "Number of findings of the profile.", len(profile.findings))
    exposition.add("ccctl_profile_duration_seconds", "Duration of the measurement.", profile.seconds)


def _add_segments(exposition: Exposition, profile: Profile) -> None:
    """Add the share of TCP segments that each host retransmitted."""
    meaning = "The share of TCP segments of the host that were retransmitted while links were measured."
    for segment in profile.segments:
        exposition.add("ccctl_host_retransmitted_ratio", meaning, segment.share, host=segment.host)


def add_hosts(exposition: Exposition, profile: Profile) -> None:
    """Add the median sending and receiving bandwidth of each host's links."""
    import numpy as np

    links = profile.links
    host = np.array([entry.host for entry in profile.ranks])
    src, dst = host[links.src], host[links.dst]
    for name, meaning, ends in (
        ("ccctl_host_egress_bytes_per_second", "Median bandwidth of the links from the host.", src),
        ("ccctl_host_ingress_bytes_per_second", "Median bandwidth of the links to the host.", dst),
    ):
        for one in dict.fromkeys(host.tolist()):
            mine = (ends == one) & (src != dst)
            if mine.any():
                exposition.add(name, meaning, float(1 / np.median(links.beta_s_per_byte[mine])), host=one)
    _add_segments(exposition, profile)


def add_watch(exposition: Exposition, found: WatchFindings, outcome: WatchOutcome, baseline_s: float) -> None:
    """Add the findings and the decision of a watch run; with very many links, only figures by host."""
    if len(found.now.links.src) > _MOST_LINKS:
        add_hosts(exposition, found.now)
    else:
        add_profile(exposition, found.now)
    verdict, plan = found.verdict, outcome.plan
    worst = max((one.change.times for one in found.standing), default=1.0)
    unknown = int((~outcome.history.known()).sum())
    for name, meaning, value in (
        ("drifts", "Number of drifts from the baseline.", len(found.standing) + len(verdict.drift.gone)),
        ("recovered", "Number of drifts that have recovered since the last run.", len(verdict.recovered)),
        ("worst_ratio", "Share of the baseline that the worst link still reaches.", 1 / worst),
        ("links_compared", "Number of links compared with the baseline.", verdict.drift.compared),
        ("links_unknown", "Number of links not measured lately, or since the network changed.", unknown),
        ("runs", "Number of runs in the history.", outcome.history.runs),
        ("schedule_replaced", "1 if this run changed the current schedule.", int(bool(outcome.adopted))),
        (
            "predicted_gain_ratio",
            "Predicted speed of the new schedule over the old.",
            plan.gain if plan else 1.0,
        ),
        ("run_timestamp_seconds", "Time of the measurement of this run.", float(outcome.history.at_s[-1])),
    ):
        exposition.add(f"ccctl_watch_{name}", meaning, value)
    predicted = "Predicted time of the given schedule."
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
        meaning = "Time at which the command last did all its work, with findings or without."
        found.add(_SUCCESS, meaning, success, command=command)
    found.add("ccctl_exit_code", "Exit code: 0 is well, 1 with findings.", status, command=command)
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
