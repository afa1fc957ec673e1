"""An acceptance for other tools: each file is read by a parser of its format, whatever its texts are."""

import json
import re
import shlex
import shutil
import subprocess
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from certificates import (
    CABLE,
    CERTIFICATES,
    GOVERNOR,
    HOSTS,
    SLOT,
    WHOLE,
    accepted,
    certificates,
    refused,
    remarks,
)
from drawn_examples import drawn
from hypothesis import given, settings

from ccctl.render import acceptance_exports
from ccctl.render.prometheus import Exposition

ODD = "a'b\"c$(touch x)`y`\\\n\x1b[31m;rm -rf /\ud800"


def suite(certificate):
    return ElementTree.fromstring(acceptance_exports.as_junit(certificate)).find("testsuite")


def exposition(certificate):
    found = Exposition()
    acceptance_exports.add_acceptance(found, certificate)
    return found.render()


# JUnit


def test_faults_fail_and_remarks_stand_in_what_passed():
    cases = {(case.get("classname"), case.get("name")): case for case in suite(refused())}
    failed = [name for (_, name), case in cases.items() if case.find("failure") is not None]
    assert failed == ["accepted", "gpu007", "gpu011", "rack B to rack C"]
    told = cases["ccctl accept.hosts", "gpu007"].find("failure").text.splitlines()
    assert told[0] == f"fault: {CABLE.text}"
    assert cases["ccctl accept.hosts", "gpu007"].find("failure").get("type") == "egress"
    assert suite(refused()).get("timestamp") == "2026-11-26T06:00:00"
    assert "cost: an all_reduce of 1 GiB takes 34 ms now, and 21 ms once it is repaired, by the model" in told
    assert f"remark: {GOVERNOR.text}" in cases["ccctl accept.hosts", "gpu003"].find("system-out").text
    assert cases["ccctl accept.hosts", "gpu013"].find("skipped").get("message").startswith("no answer")
    assert cases["ccctl accept.stages", "links"].get("time") == "312.000000000"
    assert len([name for group, name in cases if group == "ccctl accept.collectives"]) == len(WHOLE)


def test_an_accepted_cluster_has_no_failure_and_an_undecided_one_a_skip():
    assert suite(accepted()).get("failures") == suite(remarks()).get("failures") == "0"
    undecided = suite(replace(accepted(), verdict="undecided", reason="no profile"))
    assert undecided.get("skipped") == "1"
    assert undecided.find("testcase/skipped").get("message") == "undecided: no profile"


def test_wrong_results_fail():
    wrong = replace(accepted(), whole=(replace(WHOLE[0], wrong=3),))
    assert suite(wrong).find("testcase/failure").get("message").startswith("3 wrong elements; 34 ms")


def test_a_culprit_on_a_host_that_was_not_tested_is_not_lost():
    certificate = replace(accepted(), tested=HOSTS[:2], culprits=(CABLE,))
    assert suite(certificate).find("testcase/failure").text.startswith(f"fault: {CABLE.text}")


@given(certificates())
def test_any_acceptance_is_xml_with_right_counts(certificate):
    root = suite(certificate)
    cases = root.findall("testcase")
    assert int(root.get("tests")) == len(cases)
    assert int(root.get("failures")) == len(root.findall("testcase/failure"))
    assert int(root.get("skipped")) == len(root.findall("testcase/skipped"))


# CTRF: the rules of its schema (ctrf-io/ctrf, schema/ctrf.schema.json) for the members that are written.

COUNTS = ("passed", "failed", "skipped", "pending", "other")


def check_ctrf(document):
    assert set(document) == {"reportFormat", "specVersion", "results"}
    assert document["reportFormat"] == "CTRF"
    assert re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+", document["specVersion"])
    results = document["results"]
    assert set(results) == {"tool", "summary", "tests", "extra"}
    assert results["tool"]["name"] and set(results["tool"]) <= {"name", "version", "extra"}
    summary = results["summary"]
    assert set(summary) == {"tests", *COUNTS, "start", "stop"}
    assert all(type(value) is int for value in summary.values())
    assert summary["start"] <= summary["stop"]
    for test in results["tests"]:
        assert (
            {"name", "status", "duration"} <= set(test) <= {"name", "status", "duration", "suite", "message"}
        )
        assert isinstance(test["name"], str) and test["name"]
        assert test["status"] in COUNTS
        assert type(test["duration"]) is int and test["duration"] >= 0
        assert test["suite"] and all(isinstance(one, str) for one in test["suite"])
        assert isinstance(test.get("message", ""), str)
        assert test["status"] != "passed" or "message" not in test
    assert summary["tests"] == len(results["tests"])
    for status in COUNTS:
        assert summary[status] == sum(test["status"] == status for test in results["tests"])


@pytest.mark.parametrize("name", CERTIFICATES)
def test_ctrf_follows_its_schema_and_has_the_tests_of_junit(name):
    certificate = CERTIFICATES[name]
    document = json.loads(acceptance_exports.as_ctrf(certificate))
    check_ctrf(document)
    tests = document["results"]["tests"]
    assert [test["name"] for test in tests] == [case.get("name") for case in suite(certificate)]


def test_ctrf_says_when_it_was_in_milliseconds():
    summary = json.loads(acceptance_exports.as_ctrf(refused()))["results"]["summary"]
    assert summary["start"] == 1_795_672_800_000
    assert summary["stop"] - summary["start"] == 541_700
    without = json.loads(acceptance_exports.as_ctrf(replace(refused(), started="")))["results"]["summary"]
    assert (without["start"], without["stop"]) == (0, 0)


@given(certificates())
def test_any_acceptance_is_ctrf(certificate):
    content = acceptance_exports.as_ctrf(certificate)
    assert b"\x1b" not in content
    check_ctrf(json.loads(content))


# Slurm


def commands(script):
    """The words of each command of a script, as a shell reads them."""
    return [shlex.split(line) for line in script.splitlines() if not line.startswith("#")]


def test_each_host_with_a_fault_is_drained_once_with_its_reason():
    since = "reason=ccctl 2026-11-26"
    assert commands(acceptance_exports.drain_script(refused())) == [
        ["scontrol", "update", "nodename=gpu007", "state=drain", f"{since}: {CABLE.text[7:]}"],
        ["scontrol", "update", "nodename=gpu011", "state=drain", f"{since}: likely: {SLOT.text}"],
    ]
    (_, (*_, reason)) = commands(acceptance_exports.drain_script(refused(), "/accepted/certificate.json"))
    assert reason.endswith("; see /accepted/certificate.json")
    between = [
        line for line in acceptance_exports.drain_script(refused()).splitlines() if "between hosts" in line
    ]
    assert len(between) == 1 and "rack B to rack C" in between[0]


def test_remarks_and_an_accepted_cluster_drain_nothing():
    for certificate in (accepted(), remarks()):
        assert commands(acceptance_exports.drain_script(certificate)) == []
        assert "# no host to drain" in acceptance_exports.drain_script(certificate)


def test_more_faults_of_a_host_are_counted():
    twice = replace(accepted(), culprits=(CABLE, replace(CABLE, kind="ingress", text="x" * 500)))
    ((*_, reason),) = commands(acceptance_exports.drain_script(twice))
    assert reason.endswith("(and 1 more fault)")
    long = replace(accepted(), culprits=twice.culprits[::-1])
    ((*_, reason),) = commands(acceptance_exports.drain_script(long))
    assert len(reason) == len("reason=") + 200 and reason.endswith("… (and 1 more fault)")


@pytest.mark.parametrize("host", ["gpu[1-4]", "a,b", "ALL", "-x", "", "a b", "$(reboot)"])
def test_a_name_that_slurm_reads_as_several_nodes_is_not_drained(host):
    culprit = replace(CABLE, hosts=(host,), part=host)
    script = acceptance_exports.drain_script(replace(accepted(), tested=(host,), culprits=(culprit,)))
    assert commands(script) == [] and "not the name of one node" in script


@settings(max_examples=drawn(25))
@given(certificates())
def test_any_script_is_read_by_a_shell_and_only_drains(certificate):
    odd = replace(CABLE, hosts=("gpu001",), text=ODD, part=certificate.plan)
    script = acceptance_exports.drain_script(replace(certificate, culprits=(*certificate.culprits, odd)))
    assert subprocess.run(["bash", "-n"], input=script.encode(), capture_output=True).stderr == b""
    found = commands(script)
    assert found
    for words in found:
        assert words[:2] == ["scontrol", "update"] and len(words) == 5
        assert re.fullmatch(r"nodename=[\w.-]+", words[2], re.ASCII) and words[3] == "state=drain"
        assert (
            re.match(r"reason=ccctl( \d{4}-\d\d-\d\d)?: ", words[4]) and len(words[4]) <= len("reason=") + 200
        )
        assert words[4].isprintable() or "\n" not in words[4]


def test_a_shell_gives_scontrol_what_was_meant(tmp_path):
    odd = replace(CABLE, part="gpu007", text=f"gpu007 {ODD}")
    tool = tmp_path / "scontrol"
    tool.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    tool.chmod(0o755)
    script = acceptance_exports.drain_script(replace(accepted(), culprits=(odd,)))
    path = f"{tmp_path}:/usr/bin:/bin"
    done = subprocess.run(
        ["sh"], input=script, capture_output=True, text=True, cwd=tmp_path, env={"PATH": path}
    )
    assert done.stderr == ""
    assert done.stdout.splitlines()[:3] == ["update", "nodename=gpu007", "state=drain"]
    assert "$(touch x)`y`" in done.stdout.splitlines()[3]
    assert [one.name for one in tmp_path.iterdir()] == ["scontrol"]


# Kubernetes


def conditions(certificate):
    """The condition that each line sets, by the name of its node, as a shell reads the line."""
    found = {}
    for words in commands(acceptance_exports.conditions_script(certificate)):
        assert words[:3] == ["kubectl", "patch", "node"]
        assert words[4:6] == ["--subresource=status", "-p"]
        (found[words[3]],) = json.loads(words[6])["status"]["conditions"]
    return found


def test_each_host_has_a_condition():
    told = conditions(refused())
    assert list(told) == [*HOSTS, "gpu013", "gpu014"]
    assert {(one["status"], one["reason"]) for one in told.values()} == {
        ("False", "Egress"),
        ("False", "PcieWidth"),
        ("Unknown", "Trunk"),
        ("Unknown", "NotTested"),
        ("True", "Remarks"),
        ("True", "NoFaults"),
    }
    assert told["gpu007"] == {
        "type": "CcctlAccepted",
        "status": "False",
        "reason": "Egress",
        "message": CABLE.text,
        "lastHeartbeatTime": "2026-11-26T06:09:01Z",
        "lastTransitionTime": "2026-11-26T06:09:01Z",
    }


def test_without_a_time_or_a_verdict_no_host_is_accepted():
    told = conditions(replace(accepted(), verdict="undecided", reason="no profile", started=""))
    assert {(one["status"], one["reason"]) for one in told.values()} == {("Unknown", "Undecided")}
    assert all("lastTransitionTime" not in one for one in told.values())


@given(certificates())
def test_any_condition_is_one_that_kubernetes_takes(certificate):
    script = acceptance_exports.conditions_script(certificate)
    assert "\x1b" not in script
    assert subprocess.run(["bash", "-n"], input=script.encode(), capture_output=True).stderr == b""
    for one in conditions(certificate).values():
        assert one["type"] == "CcctlAccepted" and one["status"] in ("True", "False", "Unknown")
        # The pattern of a reason in metav1.Condition.
        assert re.fullmatch("[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", one["reason"])
        assert isinstance(one["message"], str) and "\n" not in one["message"]


@pytest.mark.parametrize("host", ["-x", "GPU1", "a b", "$(reboot)", "a..b", ""])
def test_a_name_that_no_node_has_becomes_a_comment(host):
    script = acceptance_exports.conditions_script(replace(accepted(), tested=(host,)))
    assert commands(script) == [] and "not the name of a node" in script


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="needs shellcheck")
def test_shellcheck_has_nothing_to_say():
    odd = replace(refused(), culprits=(replace(CABLE, text=ODD), SLOT))
    for script in (acceptance_exports.drain_script(odd, "/a b"), acceptance_exports.conditions_script(odd)):
        command = ["shellcheck", "-S", "warning", "-"]
        checked = subprocess.run(command, input=script.encode(), capture_output=True)
        assert checked.returncode == 0, checked.stdout.decode()


# Prometheus

SAMPLE = re.compile(r'[a-z_]+(\{[a-z_]+="([^"\\\n]|\\.)*"(,[a-z_]+="([^"\\\n]|\\.)*")*\})? [0-9.e+-]+')


def test_verdict_hosts_culprits_and_collectives_are_samples():
    lines = exposition(refused()).splitlines()
    for line in (
        'ccctl_acceptance_verdict{verdict="refused"} 1',
        'ccctl_acceptance_verdict{verdict="accepted"} 0',
        "ccctl_acceptance_faults 3",
        "ccctl_acceptance_remarks 1",
        "ccctl_acceptance_hosts_tested 12",
        "ccctl_acceptance_hosts_skipped 2",
        'ccctl_acceptance_host_faults{host="gpu007"} 1',
        'ccctl_acceptance_host_faults{host="gpu009"} 0',
        'ccctl_acceptance_stage_seconds{stage="links"} 312.0',
    ):
        assert line in lines
    row = '{collective="all_reduce",size_bytes="1073741824",library="ccctl"}'
    assert f"ccctl_acceptance_collective_seconds{row} 0.034" in lines
    assert f"ccctl_acceptance_collective_bought_bound_seconds{row} 0.019" in lines


@given(certificates())
def test_any_exposition_has_samples_once(certificate):
    lines = [line for line in exposition(certificate).splitlines() if not line.startswith("#")]
    assert all(SAMPLE.fullmatch(line) for line in lines)
    series = [line.rpartition(" ")[0] for line in lines]
    assert len(set(series)) == len(series)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")
@settings(max_examples=5)
@given(certificates())
def test_prometheus_own_tool_reads_it(certificate):
    for one in (certificate, refused()):
        checked = subprocess.run(
            ["promtool", "check", "metrics"], input=exposition(one).encode(), capture_output=True
        )
        # Status 3 is for advice on names.
        assert checked.returncode in (0, 3), checked.stderr
        assert b"error while linting" not in checked.stderr
