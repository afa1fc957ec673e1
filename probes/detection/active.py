"""The active probes on this machine: answers beside passive facts, and contradictions as findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from probes.base import UnavailableError
from probes.detection.adapcc_probes import Copies, Loopback, ProbeTrials, gpu_switches, nic_numa, nic_switches
from probes.live import CudaCopies, SocketLoopback
from probes.paths import Paths
from probes.topology import Finding, Gpu, Host, Nic, Probed, Topology

__all__ = ["contradictions", "probe_host", "probed"]

# An answer contradicts a fact only if this share of bootstrap resamplings gives the answer.
_SURE = 0.9
_ON_ONE_SWITCH = ("PIX", "PXB")


def probed(found: Topology, seed: int) -> Topology:
    """Return the topology of this machine, its only host, with the answers of the active probes."""
    (host,) = found.hosts
    done = probe_host(host, _copies, SocketLoopback(host), ProbeTrials(seed=seed))
    return replace(found, hosts=(done,), findings=(*found.findings, *contradictions(done)))


def probe_host(host: Host, copies: Callable[[Host], Copies], loopback: Loopback, trials: ProbeTrials) -> Host:
    """Run all three probes, one after the other, because they would disturb each other.

    ``copies`` may raise UnavailableError: the probes that need GPUs then refuse with that reason.
    """
    gpus = [gpu.bus_id for gpu in host.usable_gpus]
    nics = [nic.name for nic in host.physical_nics if nic.state not in ("down", "disabled")]
    answers = nic_numa(nics, [node.index for node in host.numa if node.cpus], loopback, trials)
    try:
        if not gpus:
            raise UnavailableError("there is no GPU")
        made = copies(host)
        answers += gpu_switches(gpus, made, trials)
        answers += nic_switches(gpus, nics, made, loopback, trials)
    except UnavailableError as error:
        tried = {answer.what for answer in answers}
        refused = [
            Probed("gpu_switch", tuple(gpus), seed=trials.seed, reason=error.message),
            *(Probed("nic_switch", (nic, *gpus), seed=trials.seed, reason=error.message) for nic in nics),
        ]
        answers += [one for one in refused if one.what not in tried]
    return replace(host, probed=tuple(answers))


def contradictions(host: Host) -> Iterator[Finding]:
    """Yield a finding for each confident answer of a probe that contradicts the passive facts."""
    devices: dict[str, Gpu | Nic] = {gpu.bus_id: gpu for gpu in host.gpus}
    devices |= {nic.name: nic for nic in host.nics}
    for answer in host.probed:
        if not answer.answer or (answer.confidence or 0) < _SURE:
            continue
        said, passive = _both(host, answer, [devices[name] for name in answer.devices])
        if passive and said != passive:
            text = f"the active probe says {said}, the passive facts say {passive}; neither is changed"
            yield Finding("disagree", f"{host.name}/{answer.devices[0]}", text)


def _both(host: Host, answer: Probed, devices: Sequence[Gpu | Nic]) -> tuple[str, str]:
    """Return the answer of the probe and the passive fact ("" if unknown), in the same words."""
    first = devices[0]
    if answer.what == "nic_numa":
        return f"NUMA node {answer.answer}", "" if first.numa is None else f"NUMA node {first.numa}"
    paths = Paths(host)
    ways = [paths.in_tree(first, other) for other in devices[1:]]
    if None in ways:
        return "", ""
    if answer.what == "gpu_switch":
        words = {"yes": "they share a PCIe switch", "no": "they share no PCIe switch"}
        on_one = words["yes" if ways[0] in _ON_ONE_SWITCH else "no"]
        return (
            f"of it and {answer.devices[1]}: {words[answer.answer]}",
            f"of it and {answer.devices[1]}: {on_one}",
        )
    near = [name for name, way in zip(answer.devices[1:], ways, strict=True) if way in _ON_ONE_SWITCH]
    said = answer.answer.replace(",", ", ")
    return f"on its switch are {said}", f"on its switch are {', '.join(near) or 'no GPUs'}"


def _copies(host: Host) -> Copies:
    near = {node.index: node.cpus for node in host.numa}
    cpus = {gpu.bus_id: near.get(-1 if gpu.numa is None else gpu.numa, "") for gpu in host.usable_gpus}
    return CudaCopies([gpu.bus_id for gpu in host.usable_gpus], cpus)
