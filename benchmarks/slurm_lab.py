"""ccctl in jobs of a real Slurm: a controller and four nodes, each a separate network namespace.

    python -P benchmarks/slurm_lab.py [--only detect,profile,…] [--torch PYTHON]

Starts a lab of hosts at 100 Mbit/s, munged, slurmctld and a slurmd on each node, runs an operator's commands
on the login node, prints a table, and removes everything. Each node has a separate /tmp, /dev/shm and process
numbering; the other folders are shared, as a cluster's home is. ``--torch`` is a Python with torch, for the
cases of training. Exit status 1 if a command ended otherwise than expected. Needs root, and on Debian
slurmctld, slurmd, slurm-client, munge, and libpmix-dev for srun --mpi=pmix.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from exec.lab import lifecycle
from exec.lab.model import Lab, LabHost, PairRate

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
LOGIN, NODES = "login", ("gpu1", "gpu2", "gpu3", "gpu4")
RATE_BYTES_PER_S = 100e6 / 8
PATIENCE_S, LIMIT_S = 60.0, 400.0
SHIPPED = ROOT / "examples" / "slurm" / "ccctl-bench.sbatch"
PMIX = "srun --mpi=pmix -N4 -n4"
BENCH = "-b 1M -e 1M --iters 2 -w 1"
# Two CPUs a node, whatever the machine has: the kernel shares them out.
CONF = """\
ClusterName=lab
SlurmctldHost={login}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
KillWait=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
SlurmdParameters=config_overrides
NodeName={nodes} CPUs=2 Sockets=1 CoresPerSocket=2 ThreadsPerCore=1 RealMemory=1000 State=UNKNOWN
PartitionName=lab Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
# Files that each host sees in place of the machine's; "$@" is the command.
INSIDE = """\
echo "$0" >/proc/sys/kernel/hostname
mount -t tmpfs none /dev/shm
mkdir -p {folder}/tmp
mount --bind /tmp {folder}/tmp
mount -t tmpfs -o mode=1777 none /tmp
for shared in {shared}; do mkdir -p "$shared"; mount --bind "{folder}$shared" "$shared"; done
umount {folder}/tmp
cd {job}
exec "$@"
"""
TRAINING = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
torch.set_num_threads(1)
torch.manual_seed(0)
dist.init_process_group("ccctl", init_method="ccctl://")
model = DistributedDataParallel(torch.nn.Linear(512, 512))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    model(torch.full((4, 512), float(dist.get_rank() + step))).square().mean().backward()
    optimizer.step()
every = [torch.empty_like(model.module.weight.data) for _ in range(dist.get_world_size())]
dist.all_gather(every, model.module.weight.data.clone())
assert all(torch.equal(one, every[0]) for one in every), "the ranks have different weights"
print("rank", dist.get_rank(), "of", dist.get_world_size(), "alike")
dist.destroy_process_group()
"""


@dataclass(frozen=True)
class Case:
    """A command line of the login node, its right status, and a check of its output and files."""

    name: str
    line: str
    status: int = 0
    holds: Callable[[str, Path], bool] = lambda said, job: True
    # The network during the case, and whether other work occupies each core.
    change: Callable[[Lab], Lab] = lambda lab: lab
    loaded: bool = False


@dataclass(frozen=True)
class Cluster:
    """A lab with Slurm on it, whose files are in ``folder``; commands run in its folder ``job``."""

    lab: Lab
    folder: Path
    shared: tuple[str, ...]

    @property
    def job(self) -> Path:
        return self.folder / "job"

    def words(self, host: str, command: Sequence[str]) -> list[str]:
        """Return the command line that runs ``command`` on ``host``, and ends it when this process ends."""
        shared = shlex.join(self.shared)
        script = INSIDE.format(folder=self.folder, shared=shared, job=self.job)
        entered = ["setpriv", "--pdeathsig", "KILL", "ip", "netns", "exec", self.lab.namespace(host)]
        apart = ["unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]
        return [*entered, *apart, "sh", "-ec", script, host, *command]

    def variables(self) -> dict[str, str]:
        """Return the environment of an operator, and of the jobs that inherit it."""
        path = f"{BIN}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        ours = {"PATH": path, "HOME": str(Path.home()), "SLURM_CONF": str(self.folder / "slurm.conf")}
        # mpirun refuses root without these.
        root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        return {**ours, **root, "LANG": "C.UTF-8"}

    def run(self, line: str, limit_s: float = LIMIT_S) -> subprocess.CompletedProcess[str]:
        """Return one line of shell on the login node."""
        return subprocess.run(
            self.words(LOGIN, ["sh", "-c", line]),
            env=self.variables(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=limit_s,
        )


@contextlib.contextmanager
def cluster(name: str, shared: Sequence[str] = ()) -> Iterator[Cluster]:
    """Yield a lab with Slurm on it, all nodes idle; ``shared`` are folders that all nodes see."""
    hosts = [LabHost(host, 1, RATE_BYTES_PER_S, RATE_BYTES_PER_S) for host in (LOGIN, *NODES)]
    lab = Lab(name, tuple(hosts))
    wanted = {str(ROOT), str(BIN.parent), *shared}
    with (
        tempfile.TemporaryDirectory(prefix="ccctl-slurm-", dir="/run") as place,
        contextlib.ExitStack() as up,
    ):
        made = Cluster(lab, Path(place), tuple(sorted(one for one in wanted if one.startswith("/tmp/"))))
        lifecycle.up(lab)
        up.callback(lifecycle.down, name)
        _configure(made)
        _daemon(up, _munged(made.folder), made)
        _daemon(up, made.words(LOGIN, ["slurmctld", "-D"]), made)
        for node in NODES:
            _daemon(up, made.words(node, ["slurmd", "-D", "-N", node]), made)
        _await(made)
        yield made


def _configure(made: Cluster) -> None:
    folder = made.folder
    for name in ("job", "state", *(f"spool.{node}" for node in NODES)):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.touch(0o600)
    key.write_bytes(secrets.token_bytes(128))
    (folder / "slurm.conf").write_text(CONF.format(folder=folder, login=LOGIN, nodes=",".join(NODES)))
    # In a namespace /sys shows no cgroups from which Slurm could tell their version.
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")


def _munged(folder: Path) -> list[str]:
    files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    options = [f"--{option}={folder}/munge.{ending}" for option, ending in files.items()]
    return ["setpriv", "--pdeathsig", "KILL", "munged", "--foreground", "--force", *options]


def _daemon(up: contextlib.ExitStack, words: list[str], made: Cluster) -> None:
    """Start a daemon, and register its end with ``up``."""
    with (made.folder / "daemons.log").open("ab") as log:
        process = subprocess.Popen(
            words, env=made.variables(), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )

    def end() -> None:
        # unshare is deaf to SIGTERM; what it started ends with it.
        process.kill()
        process.wait()

    up.callback(end)


def _await(made: Cluster) -> None:
    """Wait until all nodes are idle; end the script if they do not become so."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        said = made.run("sinfo --noheader --format '%D %T'").stdout
        if said.split() == [str(len(NODES)), "idle"]:
            return
        if time.monotonic() > deadline_s:
            logs = "".join(path.read_text(errors="replace")[-2000:] for path in made.folder.glob("*.log"))
            sys.exit(f"Slurm does not come up: {said}\n{logs}")
        time.sleep(0.3)


def _holds_links(name: str) -> Callable[[str, Path], bool]:
    """Return whether a profile of all nodes was written to the file ``name``."""

    def holds(said: str, job: Path) -> bool:
        body = json.loads((job / name).read_text())["body"]
        return sorted({rank["host"] for rank in body["ranks"]}) == list(NODES)

    return holds


def _batch(name: str, command: str) -> str:
    """Return a line that runs ``command`` as a batch script on four nodes; see ``_submitted``."""
    return f"printf '#!/bin/sh\\n%s\\n' {shlex.quote(command)} > {name}.sbatch; " + _submitted(
        name, f"{name}.sbatch"
    )


def _submitted(name: str, script: str) -> str:
    """Return a line that runs a batch script on four nodes and ends with its status and output.

    ``sbatch --wait`` would ask only every half a minute.
    """
    return (
        f"job=$(sbatch --parsable -N4 -n4 -o {name}.out {script}) || exit; "
        'while squeue -h -j "$job" | grep -q .; do sleep 0.2; done; '
        f"cat {name}.out; exit $(scontrol show job $job | sed -n 's/.*ExitCode=\\([0-9]*\\):.*/\\1/p')"
    )


def cases(torch: str | None) -> list[Case]:
    """Return an operator's commands, in an order in which each has the files that it reads."""
    profile, adaptive = "ccctl profile --quick -o", "ccctl run --adaptive --size 1M --iterations 20"
    on_nodes = _batch("adaptive", f'{adaptive} --hosts "$SLURM_JOB_NODELIST"')
    made = [
        Case("detect", f"{PMIX} ccctl detect -o topology.json", 0, _tells("gpu[1-4]: 4 alike")),
        Case("profile", f"{PMIX} {profile} profile.json", 0, _holds_links("profile.json")),
        Case("without-pmi", f"srun --mpi=none -N4 -n4 {profile} none.json", 69, _tells("without PMI")),
        Case("batch", _batch("batch", f"{profile} batch.json"), 0, _holds_links("batch.json")),
        Case(
            "synth", "srun -n1 ccctl synth --network profile.json --collective all_reduce --size 1M -o s.json"
        ),
        Case("compile", "srun -n1 ccctl compile s.json -o program.json"),
        Case("bench", f"{PMIX} ccctl bench s.json {BENCH}", 0, _tells("Out of bounds values : 0 OK")),
        Case("mpirun", f"salloc -N4 -n4 mpirun ccctl bench s.json {BENCH}", 0, _tells("values : 0 OK")),
        Case("run", f"{PMIX} ccctl run program.json --input x.npy -o y.npy", 0, _sums),
        Case("adaptive", f"salloc -N4 -n4 {adaptive}", 0, _tells(" 0 wrong elements")),
        Case("adaptive-batch", on_nodes, 0, _tells(" 0 wrong elements")),
        Case("shipped-batch", _submitted("shipped", f"{SHIPPED} all_reduce 64K"), 0, _reports),
    ]
    if torch is not None:
        modules = f"PYTHONPATH={ROOT}:{_site_packages()} OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1"
        rendezvous = "--nnodes=4 --nproc-per-node=1 --rdzv-backend=c10d --rdzv-endpoint=gpu1:29400"
        torchrun = f"{torch} -P -m torch.distributed.run {rendezvous}"
        made += [
            Case(
                "ddp", f"{modules} CCCTL_SECRET=lab srun -N4 -n4 {torch} -P train.py", 0, _tells("of 4 alike")
            ),
            Case("torchrun", f"{modules} srun -N4 -n4 {torchrun} train.py", 0, _tells("of 4 alike")),
        ]
    return [*made, *_watches(), *_acceptances()]


def _acceptances() -> list[Case]:
    """Return an acceptance of nodes of which one sends slowly, and of the drain lines that it writes."""
    accept = "salloc -N4 -n4 ccctl accept --budget 60s -o accepted; status=$?"
    drained = "sh accepted/drain.sh; sinfo -N -h -o '%N %T %E'; exit $status"
    slow = _with("gpu3", egress_bytes_per_s=RATE_BYTES_PER_S / 2)
    again = "scontrol update NodeName=gpu3 State=RESUME"
    return [
        Case("accept", f"{accept}; {drained}", 1, _drains("gpu3", "ccctl: sends at "), slow),
        Case("accept-resumed", f"{again}; sinfo -N -h -o '%N %T %E'", 0, _tells("gpu3 idle")),
    ]


def _drains(node: str, reason: str) -> Callable[[str, Path], bool]:
    """Return whether Slurm shows ``node``, and no other, as drained for that reason."""

    def holds(said: str, job: Path) -> bool:
        found = [line for line in said.splitlines() if line.startswith(NODES) and " drain" in line]
        return [line.split()[0] for line in found] == [node] and reason in found[0]

    return holds


def _watches() -> list[Case]:
    """Return the commands that a timer starts again and again.

    At first all is as in the baseline. Then a node has become slow, is mended and resumed; then another node,
    and a link.
    """
    watched = "--baseline profile.json --schedule s.json --state watch --prometheus watch.prom"
    drain = f"salloc -N4 -n4 {ROOT}/examples/slurm/ccctl-watch-drain {watched}; status=$?"
    watch = f"{drain}; sinfo -N -h -o '%N %T %E'; exit $status"

    def after(node: str) -> str:
        return f"scontrol update NodeName={node} State=RESUME; {watch}"

    half = RATE_BYTES_PER_S / 2
    gpu3_sends, gpu2_receives = (
        _with("gpu3", egress_bytes_per_s=half),
        _with("gpu2", ingress_bytes_per_s=half),
    )
    link = PairRate("gpu2", "gpu3", half)
    return [
        *(Case(f"watch-{number}", watch, 0, _watched()) for number in (1, 2, 3)),
        Case("watch-loaded", watch, 0, _watched(), loaded=True),
        Case("drain", watch, 1, _watched("host gpu3 sends (3 of 3", "gpu3"), gpu3_sends),
        Case("no-job", "salloc --immediate=3 -N4 -n4 true", 1, _tells("Unable to allocate")),
        Case("recovered", after("gpu3"), 0, _watched("recovered: host gpu3 sends")),
        Case("drain-again", watch, 1, _watched("host gpu2 receives (3 of 3", "gpu2"), gpu2_receives),
        Case(
            "link",
            after("gpu2"),
            1,
            _watched("drift: gpu2 → gpu3: "),
            lambda lab: replace(lab, pairs=(link,)),
        ),
        Case("mended", watch, 0, _watched("recovered: gpu2 → gpu3: ")),
    ]


def _with(name: str, **rates: float) -> Callable[[Lab], Lab]:
    """Return a change of a host's sending or receiving."""

    def changed(lab: Lab) -> Lab:
        return replace(
            lab, hosts=tuple(replace(host, **rates) if host.name == name else host for host in lab.hosts)
        )

    return changed


def _watched(words: str = "no drift: ", drained: str | None = None) -> Callable[[str, Path], bool]:
    """Return a check of a watch: it printed ``words``, metrics agree, and Slurm drained only ``drained``."""

    def holds(said: str, job: Path) -> bool:
        shown = [line for line in said.splitlines() if line.startswith(NODES) and "→" not in line[:8]]
        found = [line.split()[0] for line in shown if " drain" in line and "ccctl watch: " in line]
        metrics = dict(
            line.rsplit(" ", 1) for line in (job / "watch.prom").read_text().splitlines() if line[:1] != "#"
        )
        ended, drifts = metrics['ccctl_exit_code{command="watch"}'], float(metrics["ccctl_watch_drifts"])
        worse = said.count("\ndrift: ")
        agree = drifts == worse and ended == ("1" if worse else "0")
        return (
            words in said and agree and len(shown) == len(NODES) and found == ([drained] if drained else [])
        )

    return holds


def _sums(_said: str, job: Path) -> bool:
    """Return whether every rank has the sums of x.npy's rows."""
    return bool((np.load(job / "y.npy") == np.load(job / "x.npy").sum(0)).all())


def _reports(said: str, job: Path) -> bool:
    """Return whether a bench was right, and its job's folder holds all four files."""
    [folder] = job.glob("ccctl-*/")
    names = {path.name for path in folder.iterdir()}
    return "values : 0 OK" in said and names == {"profile.json", "schedule.json", "bench.json", "report.html"}


def _tells(words: str) -> Callable[[str, Path], bool]:
    return lambda said, _job: words in said


def _site_packages() -> str:
    return next(folder for folder in sys.path if folder.endswith("site-packages"))


def tried(made: Cluster, case: Case) -> bool:
    """Run one case and print its row; return whether it went as expected."""
    changed = case.change(made.lab)
    lifecycle.shape(made.lab, changed)
    began_s = time.monotonic()
    try:
        with _load(os.cpu_count() or 1 if case.loaded else 0):
            done = made.run(case.line)
        status, said = str(done.returncode), done.stdout
        right = done.returncode == case.status and case.holds(said, made.job)
    except (subprocess.TimeoutExpired, OSError, ValueError) as error:
        status, said, right = type(error).__name__, str(error), False
    lifecycle.shape(changed, made.lab)
    took_s = time.monotonic() - began_s
    shown = case.line if len(case.line) < 100 else f"{case.line[:97]}..."
    print(
        f"| {case.name} | {shown} | {status} | {took_s:.1f} | {'right' if right else 'WRONG'} |", flush=True
    )
    if not right:
        print(said[-4000:], flush=True)
    return right


@contextlib.contextmanager
def _load(loops: int) -> Iterator[None]:
    """Keep cores busy with ``loops`` processes within the block."""
    running = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(loops)]
    try:
        yield
    finally:
        for one in running:
            one.kill()
            one.wait()


def main() -> None:
    """Run the requested cases."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", help="names of cases, with commas between them")
    parser.add_argument("--torch", help="a Python with torch")
    options = parser.parse_args()
    # SIGTERM also takes down what was brought up.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    known = cases(options.torch)
    only = options.only.split(",") if options.only else [case.name for case in known]
    if unknown := set(only) - {case.name for case in known}:
        sys.exit(
            f"--only: there are {', '.join(case.name for case in known)}; not {', '.join(sorted(unknown))}"
        )
    shared = [str(Path(options.torch).parent.parent)] if options.torch else []
    with cluster(f"slurm-{os.getpid()}", shared) as made:
        (made.job / "train.py").write_text(TRAINING)
        np.save(made.job / "x.npy", np.arange(4 * 4096, dtype="float32").reshape(4, 4096))
        print("| case | command | status | seconds | |\n|---|---|---|---|---|", flush=True)
        right = [tried(made, case) for case in known if case.name in only]
    sys.exit(0 if all(right) else 1)


if __name__ == "__main__":
    main()
