"""Two users on one machine at once: both can work, and neither can reach or harm the other's things.

Needs root, to act as two users that own nothing else. Each runs the same commands at the same time, with a
separate home and cache. Meanwhile everything that they keep in shared places is inspected: ports and sockets,
tried by the other user, and files in /tmp, /dev/shm, /var/tmp and /run that the other user could write to.
Then the second user sets traps for the first. Prints each test and its outcome, and removes everything that
was made. The exit status is 1 if any outcome is bad.

    python -P benchmarks/two_users.py
"""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from synth.kernels.stored_loops import cache_folder

USERS = (61001, 61002)
_SHARED = ("/tmp", "/dev/shm", "/var/tmp", "/run")
_NETWORK = ("--network", "ring:2", "--bandwidth", "10GB/s", "--size", "1M")
# Commands of each user, with the exit status that each must have.
COMMANDS: tuple[tuple[tuple[str, ...], int], ...] = (
    (("synth", *_NETWORK, "-o", "s.json"), 0),
    (("verify", "s.json"), 0),
    (("profile", "-n", "2", "--budget", "5", "-o", "p.json"), 0),
    (("bench", "s.json", "-n", "2", "-b", "1K", "-e", "64K"), 0),
    (("bench", "s.json", "-n", "2", "-b", "1K", "-e", "64K", "-o", "r.json"), 0),
    (("lab", "up", "lab.toml"), 69),
)


class Trial:
    """The homes of both users, and the findings."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows: list[tuple[str, str, bool]] = []
        for user in (0, *USERS):
            self.home(user).mkdir(mode=0o700)
            os.chown(self.home(user), user, user)
            (self.home(user) / "lab.toml").write_text('name = "two"\nhosts = 2\n')
        # Loops that root has compiled serve every user.
        kept = cache_folder()
        if kept is not None and kept.is_dir():
            shutil.copytree(kept, self.folder / "system" / "ccctl")
        for words, _ in COMMANDS[:-1]:
            self.run(0, *words)

    def home(self, user: int) -> Path:
        return self.folder / f"home{user}"

    def note(self, what: str, came_of_it: str, good: bool) -> None:
        """Print a row of the table."""
        self.rows.append((what, came_of_it, good))
        print(f"{'ok  ' if good else 'BAD '}  {what:58}  {came_of_it}", flush=True)

    def run(self, user: int, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run ccctl as a user, in its home."""
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home(user)),
            "PYTHONPATH": str(Path(__file__).resolve().parents[1]),
            "NUMBA_CACHE_DIR": str(self.folder / "system"),
            **variables,
        }
        return subprocess.run(
            [sys.executable, "-P", "-m", "ccctl", *words],
            user=user,
            group=user,
            extra_groups=[],
            cwd=self.home(user),
            env=environment,
            umask=0o022,
            capture_output=True,
            text=True,
            timeout=900,
        )


def main() -> int:
    """Try everything; return 1 if any outcome is bad."""
    if os.geteuid() != 0:
        sys.exit("two_users.py: needs root, to act as two users")
    if not _others_can_start_python():
        os.execvp(
            "unshare", ["unshare", "--mount", "sh", "-c", _SHOWN, "sh", _hidden(), sys.executable, *sys.argv]
        )
    folder = Path(tempfile.mkdtemp(prefix="two-users-"))
    folder.chmod(0o755)
    try:
        trial = Trial(folder)
        with _looked_at() as seen, ThreadPoolExecutor(2) as both:
            list(both.map(lambda user: _work(trial, user), USERS))
        _judge(trial, seen)
        for trap in (_foreign_cache, _planted_link, _planted_fifo, _silent_strangers):
            trap(trial)
        _left(trial)
    finally:
        shutil.rmtree(folder)
    bad = sum(not good for *_, good in trial.rows)
    print(f"{len(trial.rows) - bad} of {len(trial.rows)} as they should be")
    return bool(bad)


# A home that others cannot enter may hold the interpreter: here they see just that of it.
_SHOWN = """
hidden=$1; shift
kept=$(mktemp -d) && mount --bind "$hidden" "$kept" && top=/$(echo "$hidden" | cut -d/ -f2) &&
mount -t tmpfs -o mode=755 none "$top" && mkdir -p "$hidden" && mount --bind "$kept" "$hidden" &&
umount "$kept" && rmdir "$kept" && exec "$@"
"""


def _others_can_start_python() -> bool:
    with suppress(OSError):
        return subprocess.run([sys.executable, "-c", ""], user=USERS[0], group=USERS[0]).returncode == 0
    return False


def _hidden() -> str:
    return str(Path(*Path(os.path.realpath(sys.executable)).parts[:3]))


def _work(trial: Trial, user: int) -> None:
    for words, expected in COMMANDS:
        done = trial.run(user, *words)
        good = done.returncode == expected and "Traceback" not in done.stderr
        last = (done.stderr.strip().splitlines() or [""])[-1][:60]
        trial.note(
            f"{user}: ccctl {' '.join(words[:2])} …", f"status {done.returncode} {'' if good else last}", good
        )


Seen = dict[tuple[int, str], str]


@contextmanager
def _looked_at() -> Iterator[Seen]:
    """Inspect shared places during the block; yield (user, place) → what is wrong there, or ""."""
    over, seen = threading.Event(), Seen()

    def look() -> None:
        while not over.wait(0.3):
            for look_at in (_sockets, _files):
                with suppress(psutil.Error, OSError):
                    for user, place, wrong in look_at():
                        seen[user, place] = (
                            wrong if (user, place) not in seen else seen[user, place] and wrong
                        )

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def _sockets() -> Iterator[tuple[int, str, str]]:
    for one in psutil.net_connections("all"):
        if one.status != psutil.CONN_LISTEN and one.family != socket.AF_UNIX:
            continue
        with suppress(psutil.Error):
            process = psutil.Process(one.pid)
            user = process.uids().real
            if user in USERS and one.laddr:
                address = one.laddr if isinstance(one.laddr, str) else (one.laddr.ip, one.laddr.port)
                yield (
                    user,
                    f"{process.name()} {one.family.name}",
                    _connects(_other(user), one.family, address),
                )


def _files() -> Iterator[tuple[int, str, str]]:
    for top in _SHARED:
        for entry in os.scandir(top):
            status = entry.stat(follow_symlinks=False)
            if status.st_uid in USERS:
                others = status.st_mode & 0o077
                kind = "".join(letter for letter in entry.name.split("-")[0] if letter.isalpha())
                named = f"{top}/{kind}… {stat.filemode(status.st_mode)}"
                yield status.st_uid, named, "others may enter" if others else ""


def _connects(user: int, family: int, address: str | tuple[str, int]) -> str:
    """Return what another user can do at an address: "" if nothing.

    By the loopback a user of this host reaches Open MPI's launcher while MPI starts: see
    docs/explanation/security.md.
    """
    if not isinstance(address, str):
        outside = [one.address for every in psutil.net_if_addrs().values() for one in every]
        outside = [one for one in outside if "." in one and not one.startswith("127.")]
        if not outside:
            return ""
        family, address = socket.AF_INET, (outside[0], address[1])
    child = (
        "import socket,sys; s=socket.socket(int(sys.argv[1])); s.settimeout(0.5); "
        "s.connect(eval(sys.argv[2])); sys.exit(7)"
    )
    words = [sys.executable, "-P", "-c", child, str(int(family)), repr(address)]
    done = subprocess.run(words, user=user, group=user, extra_groups=[], capture_output=True, timeout=30)
    return "the other user can connect" if done.returncode == 7 else ""


def _other(user: int) -> int:
    return USERS[1 - USERS.index(user)]


def _judge(trial: Trial, seen: Seen) -> None:
    for (user, place), wrong in sorted(seen.items()):
        trial.note(f"{user}: {place}", wrong or "out of the other's reach", not wrong)


def _as_user(user: int, what: Callable[[], object]) -> None:
    os.setegid(user)
    os.seteuid(user)
    try:
        what()
    finally:
        os.seteuid(0)
        os.setegid(0)


def _shared_folder(trial: Trial, name: str) -> Path:
    place = trial.folder / name
    place.mkdir()
    place.chmod(0o1777)
    return place


def _foreign_cache(trial: Trial) -> None:
    """Have the first user use a cache of the second."""
    place = _shared_folder(trial, "cache") / "theirs"
    shutil.copytree(trial.folder / "system", place)
    for path in (place, *place.rglob("*")):
        os.chown(path, USERS[1], USERS[1])
    done = trial.run(USERS[0], "verify", "s.json", NUMBA_CACHE_DIR=str(place))
    good = done.returncode == 0 and f"belongs to user {USERS[1]}" in done.stderr
    trial.note("compiled loops of another user", "not used, and said" if good else done.stderr[-60:], good)


def _planted_link(trial: Trial) -> None:
    """Write through a link that the second user put where the first will write in a shared folder."""
    private, place = trial.home(USERS[0]) / "private", _shared_folder(trial, "links") / "out.json"
    _as_user(USERS[0], lambda: bool(private.write_text("mine")))
    _as_user(USERS[1], lambda: place.symlink_to(private))
    done = trial.run(USERS[0], "synth", *_NETWORK, "-o", str(place))
    good = private.read_text() == "mine" and done.returncode == 73
    trial.note("-o through a link of another user", f"status {done.returncode}", good)


def _planted_fifo(trial: Trial) -> None:
    place = _shared_folder(trial, "fifos")
    _as_user(USERS[1], lambda: os.mkfifo(place / ".out.json.x.part"))
    os.utime(place / ".out.json.x.part", (0, 0))
    done = trial.run(USERS[0], "synth", *_NETWORK, "-o", str(place / "out.json"))
    trial.note("-o beside a FIFO of another user", f"status {done.returncode}", done.returncode == 0)


def _silent_strangers(trial: Trial) -> None:
    """Have the second user connect wherever the first listens, and say nothing.

    That may keep Open MPI's launcher from starting the run, which must then end by itself and say so.
    """
    over = threading.Event()
    held: list[socket.socket] = []

    def connect() -> None:
        while not over.wait(0.1):
            with suppress(psutil.Error):
                for one in psutil.net_connections("tcp"):
                    owner = psutil.Process(one.pid).uids().real if one.pid else 0
                    if one.status == psutil.CONN_LISTEN and owner == USERS[0]:
                        end = socket.socket()
                        end.setblocking(False)
                        end.connect_ex(("127.0.0.1", one.laddr.port))
                        held.append(end)

    thread = threading.Thread(target=connect)
    thread.start()
    began = time.monotonic()
    done = trial.run(USERS[0], "bench", "s.json", "-n", "2", "-b", "1K", "-e", "1K")
    over.set()
    thread.join()
    for end in held:
        end.close()
    said = f"status {done.returncode} after {time.monotonic() - began:.0f} s, {len(held)} tried"
    trial.note("strangers that connect and say nothing", said, done.returncode in (0, 69))


def _left(trial: Trial) -> None:
    """Check that neither user has files in shared places, or processes, a moment later."""
    time.sleep(5)
    left = [
        entry.path
        for top in _SHARED
        for entry in os.scandir(top)
        if entry.stat(follow_symlinks=False).st_uid in USERS
    ]
    running = [process.pid for process in psutil.process_iter() if _owner(process) in USERS]
    trial.note("files and processes left", f"{left + running}", not left and not running)


def _owner(process: psutil.Process) -> int:
    with suppress(psutil.Error):
        return int(process.uids().real)
    return 0


if __name__ == "__main__":
    sys.exit(main())
