"""The folder of an acceptance: its measurements, and the certificate with its seal.

The certificate names the SHA-256 of each file that the verdict rests on. The seal of the certificate is the
SHA-256 of its bytes with the seal left empty, so a change of any of its bytes shows, too.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccctl.artifacts import codec, exists, read_input, write_atomically
from ccctl.errors import CannotWriteError, DataError, LockHeldError
from probes.files import FileLock, ownership, temporary_folders

if TYPE_CHECKING:
    from exec.acceptance import Certificate

__all__ = [
    "CERTIFICATE",
    "EVIDENCE",
    "MEASURED",
    "SAMPLES",
    "AcceptanceFolder",
    "opened",
    "seal_of",
    "sealed",
]

CERTIFICATE, EVIDENCE, _LOCK = "certificate.json", "evidence", "lock"
# The artifacts that a verdict rests on, in the order in which they are measured. SAMPLES are the raw samples
# of the profile.
MEASURED = ("topology", "health", "profile", "report", "selection")
SAMPLES = "samples"
_SEAL = b'"seal": "%s"'


@dataclass(frozen=True)
class AcceptanceFolder:
    """An open folder of one acceptance."""

    path: Path

    def file(self, name: str) -> Path:
        """Return the path of a file in the folder."""
        return self.path / name

    def write(self, kind: str, body: object) -> None:
        """Write one measured artifact."""
        codec.write(str(self.file(f"{kind}.json")), kind, body)

    def read(self, kind: str) -> Any:
        """Return one measured artifact; None if it is not there."""
        path = str(self.file(f"{kind}.json"))
        return codec.read(path, kind).body if exists(path) else None

    def keep(self, name: str, content: bytes) -> None:
        """Write a file that the verdict rests on, or one that is derived from the verdict."""
        path = self.file(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)

    def digests(self) -> dict[str, str]:
        """Return the SHA-256 of each file that the verdict rests on, by its name in the folder."""
        names = [f"{kind}.json" for kind in (*MEASURED, SAMPLES)]
        names += sorted(path.name for path in self.path.glob("plan.*"))
        names += sorted(f"{EVIDENCE}/{path.name}" for path in self.file(EVIDENCE).glob("*"))
        return {name: digest(self.file(name)) for name in names if self.file(name).is_file()}

    def write_certificate(self, certificate: Certificate) -> None:
        """Write the certificate with the digests of the files beside it, and its seal."""
        found = replace(certificate, files=self.digests())
        write_atomically(self.file(CERTIFICATE), sealed(found))

    def certificate(self) -> Certificate | None:
        """Return the certificate in the folder; None if there is none."""
        path = str(self.file(CERTIFICATE))
        if not exists(path):
            return None
        found: Certificate = codec.read(path, "certificate").body
        return found

    def clear(self) -> None:
        """Remove the measurements and the certificate of an earlier acceptance."""
        for name in (CERTIFICATE, *self.digests()):
            self.file(name).unlink(missing_ok=True)


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(read_input(str(path))[0]).hexdigest()


def sealed(certificate: Certificate) -> bytes:
    """Return the bytes of a certificate with its seal."""
    plain = codec.encode("certificate", replace(certificate, seal=""))
    seal = hashlib.sha256(plain).hexdigest().encode()
    return plain.replace(_SEAL % b"", _SEAL % seal)


def seal_of(content: bytes, seal: str) -> str:
    """Return the seal that the bytes of a certificate should have; ``seal`` is the seal they contain."""
    return hashlib.sha256(content.replace(_SEAL % seal.encode(), _SEAL % b"")).hexdigest()


@contextlib.contextmanager
def opened(path: str | None) -> Iterator[AcceptanceFolder]:
    """Open the folder ``path`` for this acceptance alone; make it if it is missing.

    If ``path`` is None, open a temporary folder, and remove it at the end. Raises LockHeldError if another
    acceptance holds the folder, and CannotWriteError if the folder cannot be made or written.
    """
    if path is None:
        with temporary_folders.folder("ccctl-accept-") as place:
            yield AcceptanceFolder(place.resolve())
        return
    place = Path(os.path.realpath(path))
    if place.exists() and not place.is_dir():
        raise CannotWriteError(f"{path}: expected a folder, found a file", hint="Name a folder with -o.")
    lock = FileLock(_LOCK, place)
    try:
        ownership.make(place)
        holder = lock.take()
    except OSError as error:
        raise CannotWriteError(
            f"{path}: {error.strerror}", hint="Name a folder that you can write."
        ) from error
    if holder:
        raise LockHeldError(f"{path}: another acceptance has this folder ({holder})")
    try:
        yield AcceptanceFolder(place)
    finally:
        lock.release()


def refuse_damaged(folder: AcceptanceFolder, certificate: Certificate) -> None:
    """Raise DataError if a measurement of an unfinished acceptance is missing or was changed."""
    found = folder.digests()
    wrong = [
        f"{name}: {'changed' if name in found else 'missing'} since the certificate was written"
        for name, before in certificate.files.items()
        if found.get(name) != before
    ]
    if wrong:
        raise DataError(str(folder.file(CERTIFICATE)), wrong, hint="Start anew in another folder.")
