"""The files that are made of a certificate: its page, and files for schedulers, CI and monitoring."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ccctl.acceptance.folder import CERTIFICATE, AcceptanceFolder
from ccctl.artifacts import codec
from ccctl.errors import FoundProblem
from ccctl.render import prometheus

if TYPE_CHECKING:
    from ccctl.artifacts import Artifact
    from exec.acceptance import Certificate, Changes
    from probes.health import ClusterHealth

__all__ = ["write_outputs"]

_SHOWN = ("profile", "report")


def write_outputs(
    folder: AcceptanceFolder, certificate: Certificate, changes: Changes | None
) -> tuple[str, ...]:
    """Write the files into the folder; return a line about each: "index.html: the page …"."""
    from ccctl import __version__
    from ccctl.render import acceptance_exports as exports, acceptance_page

    made = f"ccctl {__version__}, {certificate.started}"
    page = acceptance_page.page(certificate, _artifacts(folder), changes, made=made)
    drain = exports.drain_script(certificate, str(folder.file(CERTIFICATE)))
    conditions = exports.conditions_script(certificate)
    files = {
        "index.html": ("the page to look at first", page.encode()),
        "junit.xml": ("for CI", exports.as_junit(certificate)),
        "ctrf.json": ("for CI", exports.as_ctrf(certificate)),
        "drain.sh": ("drains the faulty hosts in Slurm", drain.encode()),
        "conditions.sh": ("sets node conditions in Kubernetes", conditions.encode()),
        **_environments(folder.read("health")),
    }
    for name, (_, content) in files.items():
        folder.keep(name, content)
    with suppress(FoundProblem), prometheus.exposed(str(folder.file("accept.prom")), "accept") as exposition:
        exports.add_acceptance(exposition, certificate)
        if certificate.verdict == "refused":
            # The file states the exit status of the command.
            raise FoundProblem(certificate.reason)
    lines = [f"{name}: {what}" for name, (what, _) in files.items()]
    return (
        *lines,
        "accept.prom: for Prometheus",
        f"{CERTIFICATE}: the verdict and all that it rests on; ccctl verify computes it again",
    )


def _artifacts(folder: AcceptanceFolder) -> list[Artifact]:
    paths = [folder.file(f"{kind}.json") for kind in _SHOWN]
    return [codec.read(str(path)) for path in paths if path.is_file()]


def _environments(health: ClusterHealth | None) -> dict[str, tuple[str, bytes]]:
    """Return a file to source for each set of variables: its name, description and content."""
    from exec.launcher import fold
    from probes.health import source_file

    hosts_of: dict[str, list[str]] = {}
    for one in health.every() if health else ():
        if one.environment:
            hosts_of.setdefault(source_file(one.environment), []).append(one.host)
    found = {}
    for number, (content, hosts) in enumerate(hosts_of.items()):
        name = "environment.sh" if len(hosts_of) == 1 else f"environment-{number + 1}.sh"
        found[name] = f"the variables that libraries need on {fold(hosts)}", content.encode()
    return found
