"""The MPI library of this process."""

from __future__ import annotations

__all__ = ["library_name"]


def library_name() -> str:
    """Return the MPI library's name and version, such as "Open MPI v5.0.11"; this starts MPI."""
    from mpi4py import MPI

    text: str = MPI.Get_library_version()
    return " ".join(text.replace("\0", " ").strip().splitlines()[0].split(",")[0].split())
