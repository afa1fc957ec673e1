"""An acceptance as files for other tools: JUnit, CTRF, Slurm, Kubernetes, Prometheus."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ccctl import __version__
from ccctl.render.acceptance import (
    cost_texts,
    headline,
    is_in_hosts,
    moments,
    of_host,
    row_name,
    sentence,
    surely,
)
from ccctl.render.junit_xml import Case, Outcome, junit
from ccctl.render.units import seconds
from probes.base import plural, unsteered_json, visible

if TYPE_CHECKING:
    from datetime import datetime

    from ccctl.render.prometheus import Exposition
    from exec.acceptance import Certificate, Culprit, WholeRow

__all__ = ["add_acceptance", "as_ctrf", "as_junit", "conditions_script", "drain_script"]

_SUITE = "ccctl accept"
# CTRF's schema asks for a version of the form x.y.z; CTRF's own reporters write 0.0.0.
_CTRF_VERSION = "0.0.0"
# The most characters of a reason: `sinfo -R` prints it on the line of the node.
_MOST_REASON = 200
# A longer path would leave too little of a reason for the fault.
_MOST_PATH = 100
# A name of a node in Kubernetes: a subdomain of RFC 1123.
_KUBERNETES_NODE = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
# A name that scontrol reads as exactly one node: brackets, commas or ALL would drain others, too.
_NODE = re.compile(r"(?!all$)[A-Za-z0-9_][A-Za-z0-9_.-]*", re.IGNORECASE)
_CONDITION = "CcctlAccepted"
_NOT_LETTERS = re.compile("[^A-Za-z0-9]+")
_VERDICTS = ("accepted", "accepted with remarks", "refused", "undecided")


def as_junit(certificate: Certificate) -> bytes:
    """Return the acceptance as JUnit's XML: the verdict, hosts, parts between hosts, collectives, stages."""
    span = moments(certificate)
    return junit(_SUITE, list(_cases(certificate)), f"{span[0]:%Y-%m-%dT%H:%M:%S}" if span else "")


def as_ctrf(certificate: Certificate) -> bytes:
    """Return the acceptance in the Common Test Report Format (ctrf.io), with the same tests as in JUnit.

    Times are in milliseconds; start and stop are 0 if the certificate does not say when it was made.
    """
    cases = list(_cases(certificate))
    span = moments(certificate)
    start, stop = (round(1000 * one.timestamp()) for one in span) if span else (0, 0)
    count = {name: sum(case.outcome == name for case in cases) for name in ("passed", "failed", "skipped")}
    summary = {"tests": len(cases), **count, "pending": 0, "other": 0, "start": start, "stop": stop}
    results = {
        "tool": {"name": "ccctl", "version": __version__},
        "summary": summary,
        "tests": [_ctrf_test(case) for case in cases],
        "extra": {"verdict": certificate.verdict, "seal": certificate.seal},
    }
    return _json({"reportFormat": "CTRF", "specVersion": _CTRF_VERSION, "results": results})


def _ctrf_test(case: Case) -> dict[str, Any]:
    test = {"name": case.name or "-", "status": case.outcome, "duration": round(1000 * case.time_s)}
    # A message is shown as what went wrong, so a test that passed has none.
    message = {"message": case.why} if case.why and case.outcome != "passed" else {}
    return {**test, "suite": [_SUITE, case.group], **message}


def _cases(certificate: Certificate) -> Iterator[Case]:
    """Yield the checks of an acceptance: a fault fails its check, a remark only adds text."""
    refused, undecided = certificate.verdict == "refused", certificate.verdict == "undecided"
    outcome: Outcome = "failed" if refused else "skipped" if undecided else "passed"
    yield Case("accepted", 0.0, outcome, headline(certificate), "verdict", certificate.verdict)
    for host in certificate.tested:
        yield _culprits_case(host, of_host(certificate, host), "hosts")
    for host, reason in certificate.skipped.items():
        yield Case(host, 0.0, "skipped", reason, "hosts")
    for culprit in certificate.culprits:
        if not (is_in_hosts(culprit) and set(culprit.hosts) & set(certificate.tested)):
            yield _culprits_case(culprit.part, [culprit], "cluster")
    for row in certificate.whole:
        yield _row_case(row)
    for stage in certificate.stages:
        yield Case(
            stage.label,
            max(0.0, stage.seconds),
            "passed" if stage.done else "skipped",
            "\n".join(f"left out: {words}" for words in stage.left_out),
            "stages",
        )


def _culprits_case(name: str, culprits: Sequence[Culprit], group: str) -> Case:
    failed = any(culprit.severity == "fault" for culprit in culprits)
    why = "\n".join(line for culprit in culprits for line in _culprit_lines(culprit))
    kind = next((culprit.kind for culprit in culprits if culprit.severity == "fault"), "remark")
    return Case(name, 0.0, "failed" if failed else "passed", why, group, kind)


def _culprit_lines(culprit: Culprit) -> Iterator[str]:
    yield f"{surely(culprit)}: {sentence(culprit)}"
    yield from (f"cost: {words}" for words in cost_texts(culprit))
    if culprit.remedy:
        yield f"to do: {culprit.remedy}"
    yield from (f"evidence: {words}" for words in culprit.evidence)


def _row_case(row: WholeRow) -> Case:
    wrong = f"{plural(row.wrong, 'wrong element')}; " if row.wrong else ""
    outcome: Outcome = "failed" if row.wrong else "passed"
    why = f"{wrong}{seconds(row.time_s)}"
    return Case(row_name(row), max(0.0, row.time_s), outcome, why, "collectives", "wrong")


def drain_script(certificate: Certificate, path: str = "") -> str:
    """Return a shell script that drains each host with a fault in Slurm.

    Each reason has the date of the acceptance, and the ``path`` of its certificate if that is given. A fault
    between hosts drains no host and becomes a comment. A faulty host whose name Slurm might not read as one
    node becomes a comment, too.
    """
    lines = ["#!/bin/sh", f"# {_one_line(headline(certificate))}"]
    drained = 0
    for host in dict.fromkeys(host for one in certificate.culprits for host in one.hosts):
        faults = [one for one in of_host(certificate, host) if one.severity == "fault"]
        if not faults:
            continue
        if _NODE.fullmatch(host):
            drained += 1
            reason = _reason(certificate, host, faults, path)
            lines.append(f"scontrol update nodename={host} state=drain reason={reason}")
        else:
            lines.append(f"# not drained, as this is not the name of one node: {_one_line(host)}")
    for culprit in certificate.culprits:
        if culprit.severity == "fault" and not is_in_hosts(culprit):
            lines.append(f"# no host to drain, as it lies between hosts: {_one_line(sentence(culprit))}")
    return "\n".join(lines if drained else [*lines, "# no host to drain"]) + "\n"


def _reason(certificate: Certificate, host: str, faults: Sequence[Culprit], path: str) -> str:
    """Return the reason of a drain, quoted for a shell: date, worst fault, number of others, certificate."""
    first, *others = faults
    doubt = "" if first.sure == "certain" else f"{first.sure}: "
    span = moments(certificate)
    date = f" {span[1]:%Y-%m-%d}" if span else ""
    more = f" (and {plural(len(others), 'more fault')})" if others else ""
    more += f"; see {visible(path)}" if path and len(path) <= _MOST_PATH else ""
    # Slurm shows the name of the node beside the reason.
    words = visible(sentence(first).removeprefix(host).lstrip(": "))
    return shlex.quote(_cut(f"ccctl{date}: {doubt}{words}", _MOST_REASON - len(more)) + more)


def _one_line(words: str) -> str:
    return _cut(visible(words), _MOST_REASON)


def _cut(words: str, most: int) -> str:
    return words if len(words) <= most else words[: most - 1] + "…"


def conditions_script(certificate: Certificate) -> str:
    """Return a shell script that sets the condition CcctlAccepted of each host's node in Kubernetes.

    ``kubectl apply`` cannot set conditions: the status of a node is a subresource, which each line patches.
    The condition is False on a host with a fault of its own. It is Unknown on a host that was not tested,
    that only shares a fault between hosts, or that has no fault in an undecided acceptance. It is True on all
    other hosts. A host whose name cannot be a node's becomes a comment.
    """
    span = moments(certificate)
    lines = ["#!/bin/sh", f"# {_one_line(headline(certificate))}"]
    for host in dict.fromkeys((*certificate.tested, *certificate.skipped)):
        if not _KUBERNETES_NODE.fullmatch(host):
            lines.append(f"# not set, as this is not the name of a node: {_one_line(host)}")
            continue
        patch = _patch(_condition(certificate, host), span and span[1])
        quoted = shlex.quote(unsteered_json(json.dumps(patch, ensure_ascii=False)))
        lines.append(f"kubectl patch node {host} --subresource=status -p {quoted}")
    return "\n".join(lines) + "\n"


def _patch(state: tuple[str, str, str], ended: datetime | None) -> dict[str, Any]:
    """Return a strategic merge patch of a node's status."""
    status, reason, message = state
    condition = {"type": _CONDITION, "status": status, "reason": reason, "message": visible(message)}
    if ended is not None:
        moment = f"{ended:%Y-%m-%dT%H:%M:%SZ}"
        condition |= {"lastHeartbeatTime": moment, "lastTransitionTime": moment}
    return {"status": {"conditions": [condition]}}


def _condition(certificate: Certificate, host: str) -> tuple[str, str, str]:
    """Return the status, the reason and the message of a host's condition."""
    if host not in certificate.tested:
        return "Unknown", "NotTested", certificate.skipped[host]
    own = of_host(certificate, host)
    faults = [one for one in own if one.severity == "fault"]
    shared = [
        culprit for culprit in certificate.culprits if host in culprit.hosts and culprit.severity == "fault"
    ]
    if faults:
        return "False", _camel(faults[0].kind), "; ".join(map(sentence, faults))
    if shared:
        return "Unknown", _camel(shared[0].kind), "; ".join(map(sentence, shared))
    if certificate.verdict == "undecided":
        return "Unknown", "Undecided", headline(certificate)
    if own:
        return "True", "Remarks", "; ".join(map(sentence, own))
    return "True", "NoFaults", "no fault was found in this host"


def _camel(kind: str) -> str:
    """Return a kind such as pcie_width as PcieWidth; Kubernetes wants a word that begins with a letter."""
    word = "".join(part[:1].upper() + part[1:] for part in _NOT_LETTERS.split(kind))
    return word if word[:1].isalpha() else f"Fault{word}"


def _json(value: object) -> bytes:
    # A host's name may hold a lone surrogate, which UTF-8 cannot encode.
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return (unsteered_json(text) + "\n").encode()


def add_acceptance(exposition: Exposition, certificate: Certificate) -> None:
    """Add the verdict, each host, each culprit with its cost, and each collective beside its bounds."""
    severities = [culprit.severity for culprit in certificate.culprits]
    for verdict in _VERDICTS:
        value = int(certificate.verdict == verdict)
        exposition.add(
            "ccctl_acceptance_verdict", "1 for the verdict on the cluster.", value, verdict=verdict
        )
    for name, meaning, number in (
        ("faults", "Number of faults.", severities.count("fault")),
        ("remarks", "Number of remarks.", severities.count("remark")),
        ("ranks", "Number of ranks that took part.", certificate.ranks),
        ("hosts_tested", "Number of hosts that took part.", len(certificate.tested)),
        ("hosts_skipped", "Number of hosts that did not take part.", len(certificate.skipped)),
    ):
        exposition.add(f"ccctl_acceptance_{name}", meaning, number)
    if span := moments(certificate):
        ended = "Time at which the acceptance ended."
        exposition.add("ccctl_acceptance_timestamp_seconds", ended, span[1].timestamp())
    for host in certificate.tested:
        faults = sum(one.severity == "fault" for one in of_host(certificate, host))
        exposition.add("ccctl_acceptance_host_faults", "Number of faults in the host.", faults, host=host)
    _add_culprits(exposition, certificate.culprits)
    _add_rows(exposition, certificate.whole)
    for stage in certificate.stages:
        meaning = "Duration of the stage."
        exposition.add("ccctl_acceptance_stage_seconds", meaning, stage.seconds, stage=stage.label)


def _add_culprits(exposition: Exposition, culprits: Sequence[Culprit]) -> None:
    for culprit in culprits:
        labels = {"part": culprit.part, "kind": culprit.kind, "severity": culprit.severity}
        meaning = "1 for each part that is not as it should be."
        exposition.add("ccctl_acceptance_culprit", meaning, 1, **labels, sure=culprit.sure)
        if culprit.cost is not None and math.isfinite(culprit.cost.times):
            meaning = "The time of the collective as a multiple of the time without the culprit."
            exposition.add("ccctl_acceptance_culprit_cost_ratio", meaning, culprit.cost.times, **labels)


def _add_rows(exposition: Exposition, rows: Sequence[WholeRow]) -> None:
    for row in rows:
        labels = {"collective": row.collective, "size_bytes": str(row.size_bytes), "library": row.library}
        for name, meaning, value in (
            ("seconds", "Time of the collective on all ranks.", row.time_s),
            ("busbw_gbs", "Bus bandwidth as nccl-tests defines it, in GB/s.", row.busbw_gbs or None),
            ("bound_seconds", "Proven least time on the network as it is.", row.bound_s),
            ("bought_bound_seconds", "Proven least time on the network as bought.", row.bought_bound_s),
            ("wrong", "Number of wrong elements.", row.wrong),
        ):
            if value is not None:
                exposition.add(f"ccctl_acceptance_collective_{name}", meaning, value, **labels)
