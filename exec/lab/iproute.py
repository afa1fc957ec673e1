"""The kernel's network tools ip and tc, with errors that name the missing feature."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from probes.base import UnavailableError

__all__ = ["batch", "inside", "ip", "ip_json", "kill_inside", "namespaces", "require"]

_NAMESPACES = Path("/run/netns")
_TOOLS = {"ip": "iproute2", "tc": "iproute2", "unshare": "util-linux", "setpriv": "util-linux", "sh": "dash"}
# (part of the message, part of the line that failed, reason); the first that matches counts.
_LACKS = (
    ("qdisc kind is unknown", "netem", "the kernel lacks the netem queue (CONFIG_NET_SCH_NETEM)"),
    (
        "qdisc kind is unknown",
        "clsact",
        "the kernel lacks the clsact queue (CONFIG_NET_SCH_INGRESS): no losses",
    ),
    ("qdisc kind is unknown", "", "the kernel lacks the htb queue (CONFIG_NET_SCH_HTB)"),
    ("classifier", "bpf", "the kernel lacks the bpf classifier (CONFIG_NET_CLS_BPF): no losses"),
    ("classifier", "", "the kernel lacks the u32 classifier (CONFIG_NET_CLS_U32)"),
    ("Unknown device type", "", "the kernel lacks veth pairs or bridges (CONFIG_VETH, CONFIG_BRIDGE)"),
    ("Operation not permitted", "", "root here is not allowed to (CAP_SYS_ADMIN and CAP_NET_ADMIN)"),
    ("Invalid argument", "", "the kernel may lack network namespaces (CONFIG_NET_NS)"),
)
# SIGKILL ends a process soon, unless it is in an uninterruptible sleep.
_PATIENCE_S = 5.0
# The form in which ip and tc name the line of a batch that failed.
_FAILED = re.compile(r"Command failed -:([0-9]+)")


def require() -> None:
    """Raise UnavailableError unless this user is root and the tools for a lab are installed."""
    if os.geteuid() != 0:
        raise UnavailableError(
            "a lab needs root: it makes network namespaces and shapes their traffic",
            hint="Run it as root, or in a container with --privileged.",
        )
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        packages = " ".join(sorted({_TOOLS[tool] for tool in missing}))
        raise UnavailableError(
            f"a lab needs the commands {', '.join(missing)}, which are not on PATH",
            hint=f"On Debian: apt-get install {packages}",
        )


def ip(*arguments: str) -> str:
    """Return the output of ``ip``; raises UnavailableError with its message if it fails."""
    return _run(["ip", *arguments])


def ip_json(*arguments: str) -> Any:
    """Return the parsed output of ``ip -json``."""
    return json.loads(ip("-json", *arguments) or "[]")


def batch(tool: str, lines: Sequence[str], namespace: str | None = None) -> None:
    """Run ``lines`` with ``ip`` or ``tc`` in ``namespace``, or in this process's, up to the first failure."""
    if lines:
        where = ["-netns", namespace] if namespace is not None else []
        _run([tool, *where, "-batch", "-"], "\n".join(lines) + "\n")


def inside(namespace: str, command: Sequence[str]) -> None:
    """Run a command in ``namespace``; raises UnavailableError with its message if it fails."""
    _run(["ip", "netns", "exec", namespace, *command])


def kill_inside(namespace: str) -> None:
    """Kill every process of a namespace; a live one would keep the namespace after its name is deleted."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while pids := ip("netns", "pids", namespace).split():
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        if time.monotonic() > deadline_s:
            raise UnavailableError(f"{namespace}: the processes {', '.join(pids)} do not end")
        time.sleep(0.02)


def namespaces() -> list[str]:
    """Return the names of all network namespaces that ``ip netns`` lists."""
    return sorted(path.name for path in _NAMESPACES.iterdir()) if _NAMESPACES.is_dir() else []


def _run(command: Sequence[str], stdin: str = "") -> str:
    done = subprocess.run(command, input=stdin, capture_output=True, text=True)
    if done.returncode == 0:
        return done.stdout
    message = " ".join((done.stderr or done.stdout).split()) or f"status {done.returncode}"
    number = _FAILED.search(message)
    line = stdin.splitlines()[int(number[1]) - 1] if number else stdin
    why = next((reason for mark, word, reason in _LACKS if mark in message and word in line), "")
    raise UnavailableError(f"{' '.join(command)}: {message}", hint=why)
