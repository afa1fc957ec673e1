"""A certificate computed again from the files beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ccctl.acceptance.folder import EVIDENCE, MEASURED, SAMPLES, AcceptanceFolder, digest, seal_of
from ccctl.artifacts import read_input
from probes.base import DataError

if TYPE_CHECKING:
    from exec.acceptance import Certificate, Measured, Terms

__all__ = ["judged", "measured_in", "recheck", "terms_of"]

# The most costs that a message names one by one.
_MOST_NAMED = 5


def recheck(path: str, certificate: Certificate) -> list[str]:
    """Return what is wrong with the certificate in the file ``path``; empty if it is proven.

    The bytes of the certificate must fit its seal. The certificate must name every file that the verdict
    rests on, with the digest of the file. Fitting the raw samples again must give the alphas and betas of the
    profile, and judging the measurements again the same certificate. Raises DataError if the acceptance has
    not ended.
    """
    left = [stage.label for stage in certificate.stages if not stage.done]
    if left:
        raise DataError(
            path,
            [f"nothing is certified yet: the acceptance stopped during {', '.join(left)}"],
            hint="The same `ccctl accept` command with --resume goes on.",
        )
    content, _ = read_input(path)
    folder = AcceptanceFolder(Path(path).resolve().parent)
    wrong = []
    if seal_of(content, certificate.seal) != certificate.seal:
        wrong.append("the seal does not fit: the certificate was changed after it was written")
    for name, expected in certificate.files.items():
        file = folder.file(name)
        if not file.is_file():
            wrong.append(f"{name}: missing, the verdict rests on it")
        elif digest(file) != expected:
            wrong.append(f"{name}: changed after the certificate was written")
    wrong += [
        f"{name}: the certificate does not name it"
        for name in folder.digests()
        if name not in certificate.files
    ]
    return wrong or [*_unfitted(folder), *_different(certificate, judged(folder, certificate))]


def _unfitted(folder: AcceptanceFolder) -> list[str]:
    """Return the costs in the profile that do not follow from its raw samples."""
    from probes.profiling import unproven

    profile, samples = folder.read("profile"), folder.read(SAMPLES)
    if profile is None:
        return []
    if samples is None:
        return [f"{SAMPLES}.json: missing, the costs in profile.json rest on it"]
    found = [f"profile.json: {words}" for words in unproven(profile.links, samples)]
    more = [f"profile.json: {len(found) - _MOST_NAMED} more costs that do not follow from its raw samples"]
    return found if len(found) <= _MOST_NAMED else [*found[:_MOST_NAMED], *more]


def judged(folder: AcceptanceFolder, asked: Certificate) -> Certificate:
    """Return the certificate that follows from the folder's measurements by the terms of ``asked``."""
    from exec.acceptance import judge

    found = judge(measured_in(folder), terms_of(folder, asked), asked.stages, asked.skipped)
    return replace(
        found,
        plan=asked.plan,
        started=asked.started,
        files=asked.files,
        seal=asked.seal,
    )


def measured_in(folder: AcceptanceFolder) -> Measured:
    """Return all measurements in a folder."""
    from exec.acceptance import Measured, evidence_of

    found = sorted(folder.file(EVIDENCE).glob("*"))
    evidence = [one for path in found for one in evidence_of({path.name: path.read_bytes()})]
    topology, health, profile, report, selection = map(folder.read, MEASURED)
    return Measured(topology, health, profile, report, tuple(evidence), selection)


def terms_of(folder: AcceptanceFolder, asked: Certificate) -> Terms:
    """Return the terms that a certificate was judged by."""
    from exec.acceptance import Terms, bought, read_plan

    plans = sorted(folder.path.glob("plan.*"))
    plan = read_plan(plans[0].read_bytes(), plans[0].name) if plans else None
    spec = bought(asked.spec) if asked.spec else None
    return Terms(spec, plan, asked.spares_asked, asked.collective, asked.size_bytes)


def _different(certificate: Certificate, again: Certificate) -> list[str]:
    """Return the fields that the measurements do not give; sentences may be worded in another way."""
    one, other = map(_without_words, (certificate, again))
    return [
        f"{name}: the measurements give another value"
        for name in certificate.__dataclass_fields__
        if getattr(one, name) != getattr(other, name)
    ]


def _without_words(certificate: Certificate) -> Certificate:
    culprits = tuple(replace(culprit, text="", evidence=(), remedy="") for culprit in certificate.culprits)
    return replace(certificate, reason="", unread={}, culprits=culprits)
