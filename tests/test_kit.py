"""The kit below examples/: scripts that parse, options and metrics that exist, alerts that fire."""

import itertools
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from ccctl.main import command_line
from exec.launcher.nodeset import read_hostfile

EXAMPLES = Path(__file__).parents[1] / "examples"
ALERTS = EXAMPLES / "prometheus" / "ccctl-alerts.yml"
DASHBOARD = EXAMPLES / "grafana" / "ccctl-dashboard.json"
SCRIPTS = [*sorted((EXAMPLES / "slurm").iterdir()), *sorted((EXAMPLES / "pbs").iterdir())]
DEPLOYED = [
    path
    for folder in ("slurm", "pbs", "kubernetes", "container", "systemd", "cron")
    for path in sorted((EXAMPLES / folder).iterdir())
]
CALL = re.compile(r"(?:^|[\s(])ccctl ((?:\\\n|[^\n)|;&])+)")
OPTION = re.compile(r"(?<=\s)(--?[a-z][a-z-]*)")


def named(path):
    return path.relative_to(EXAMPLES).as_posix()


@pytest.mark.parametrize("path", SCRIPTS, ids=named)
def test_scripts_parse(path):
    done = subprocess.run(["sh", "-n", path], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("path", [*SCRIPTS, EXAMPLES / "first_run.sh"], ids=named)
def test_scripts_pass_shellcheck(path):
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    done = subprocess.run(["shellcheck", path], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("path", DEPLOYED, ids=named)
def test_commands_and_options_exist(path):
    root = command_line()
    lines = [line for line in path.read_text().splitlines() if not line.startswith("# ")]
    calls = CALL.findall("\n".join(lines))
    for call in calls:
        words = call.replace("\\\n", " ").split()
        if words[0] == "ccctl":  # Before it stands the user of a line of cron.
            words = words[1:]
        if words[0].startswith(("-", '"')):
            continue
        assert words[0] in root.commands, call
        known = {option for one in root.commands[words[0]].params for option in one.opts}
        assert set(OPTION.findall(f" {' '.join(words[1:])}")) <= known, call


def test_every_script_of_a_scheduler_calls_the_whole_way_from_wires_to_a_report():
    for name in ("slurm/ccctl-bench.sbatch", "pbs/ccctl-bench.pbs"):
        text = (EXAMPLES / name).read_text()
        assert re.findall(r"\bccctl (profile|synth|bench|report)\b", text) == [
            "profile",
            "synth",
            "bench",
            "report",
        ]


def test_a_node_file_of_pbs_names_a_host_once_for_each_rank(tmp_path):
    (tmp_path / "nodes").write_text("n1\nn1\nn2\nn2\n")
    assert [(one.host, one.slots) for one in read_hostfile(str(tmp_path / "nodes"))] == [("n1", 2), ("n2", 2)]


def test_the_pods_of_a_job_are_those_of_its_hostfile(tmp_path):
    job = yaml.safe_load((EXAMPLES / "kubernetes" / "mpijob.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v2beta1", "MPIJob")
    worker = job["spec"]["mpiReplicaSpecs"]["Worker"]
    slots = job["spec"]["slotsPerWorker"]
    # As the operator writes /etc/mpi/hostfile.
    names = [f"{job['metadata']['name']}-worker-{at}.ccctl.default.svc" for at in range(worker["replicas"])]
    (tmp_path / "hostfile").write_text("".join(f"{name} slots={slots}\n" for name in names))
    found = read_hostfile(str(tmp_path / "hostfile"))
    assert [(one.host, one.slots) for one in found] == [(name, slots) for name in names]
    images = {
        container["image"]
        for replica in job["spec"]["mpiReplicaSpecs"].values()
        for container in replica["template"]["spec"]["containers"]
    }
    assert images == {"REGISTRY/ccctl"}


QUIET = {
    "ccctl_watch_drifts": 0,
    "ccctl_watch_worst_ratio": 1,
    'ccctl_watch_predicted_seconds{network="now"}': 0.1,
    'ccctl_watch_predicted_seconds{network="baseline"}': 0.1,
    'ccctl_host_retransmitted_ratio{host="gpu3"}': 0.001,
    "ccctl_watch_links_unknown": 0,
    'ccctl_exit_code{command="watch"}': 0,
    'ccctl_last_success_timestamp_seconds{command="watch"}': "0+60x180",
}


@pytest.mark.parametrize(
    ("changed", "fire"),
    [
        ({}, []),
        ({"ccctl_watch_drifts": 2, 'ccctl_exit_code{command="watch"}': 1}, ["NetworkWorseThanBaseline"]),
        ({"ccctl_watch_worst_ratio": 0.1}, ["LinkLost"]),
        ({'ccctl_watch_predicted_seconds{network="now"}': 0.13}, ["CollectiveSlower"]),
        ({'ccctl_watch_predicted_seconds{network="now"}': 0.11}, []),
        ({'ccctl_host_retransmitted_ratio{host="gpu3"}': 0.005}, ["PacketsLost"]),
        ({'ccctl_exit_code{command="watch"}': 69}, ["WatchFails"]),
        ({'ccctl_exit_code{command="watch"}': 75}, []),
        ({'ccctl_last_success_timestamp_seconds{command="watch"}': 0}, ["WatchStale"]),
        ({"ccctl_watch_links_unknown": 12}, ["WatchSeesTooLittle"]),
        (dict.fromkeys(QUIET), ["WatchNeverRan"]),
        ({'ccctl_last_success_timestamp_seconds{command="watch"}': None}, ["WatchNeverSucceeded"]),
    ],
)
def test_alerts_fire_for_what_they_name_alone(tmp_path, changed, fire):
    promtool()
    shutil.copy(ALERTS, tmp_path / "rules.yml")
    names = [rule["alert"] for rule in yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]]
    values = QUIET | changed
    series = [
        {"series": name, "values": value if isinstance(value, str) else f"{value}x180"}
        for name, value in values.items()
        if value is not None
    ]
    promql = "count(ALERTS{alertstate='firing'}) by (alertname)"
    expected = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in names if name in fire]
    trial = {
        "interval": "1m",
        "input_series": series,
        "promql_expr_test": [{"expr": promql, "eval_time": "3h", "exp_samples": expected}],
    }
    document = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": [trial]}
    (tmp_path / "test.yml").write_text(yaml.safe_dump(document))
    done = subprocess.run(
        ["promtool", "test", "rules", "test.yml"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def promtool():
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed")


def panels():
    return json.loads(DASHBOARD.read_text())["panels"]


def test_panels_say_what_they_show_and_do_not_overlap():
    every = panels()
    assert len({one["id"] for one in every}) == len(every)
    for one in every:
        assert one["title"] and one["description"].endswith(".")
        assert one["fieldConfig"]["defaults"]["unit"]
    for one, other in itertools.combinations([one["gridPos"] for one in every], 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        assert beside or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]


def test_expressions_of_the_dashboard_are_promql(tmp_path):
    promtool()
    asked = [target["expr"].replace("$instance", ".*") for one in panels() for target in one["targets"]]
    rules = [{"record": f"panel:{at}", "expr": expr} for at, expr in enumerate(asked)]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    done = subprocess.run(
        ["promtool", "check", "rules", tmp_path / "rules.yml"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_image_installs_from_the_project_and_starts_without_arguments():
    text = (EXAMPLES / "container" / "Dockerfile").read_text()
    steps = [line.split(maxsplit=1) for line in text.replace("\\\n", " ").splitlines() if line[:1].isupper()]
    assert [name for name, _ in steps] == ["FROM", "RUN", "COPY", "RUN", "ENV", "CMD"]
    # Its users may write nowhere: an install that is not editable compiles their loops.
    assert "pip install" in steps[3][1] and "-e" not in shlex.split(steps[3][1])
    words = json.loads(steps[-1][1])
    assert words[0] == "ccctl" and shlex.join(words) in ("ccctl --help",)
