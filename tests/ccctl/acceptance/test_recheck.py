"""A certificate is proven by the files beside it, and refused after a change of any byte of any of them."""

import json
import random
from dataclasses import replace

import numpy as np
import pytest
from measured_clusters import accept_six_hosts

from ccctl.acceptance import recheck
from ccctl.acceptance.recheck import judged
from ccctl.artifacts import codec
from exec.acceptance import Stage
from probes.base import DataError


@pytest.fixture(scope="module")
def accepted(tmp_path_factory):
    """A folder with measurements of six hosts, one of them slow, with a plan, evidence and a certificate."""
    return accept_six_hosts(tmp_path_factory.mktemp("accepted"))


def files(folder):
    return [path for path in sorted(folder.path.rglob("*")) if path.is_file()]


def problems(folder):
    path = str(folder.file("certificate.json"))
    return recheck(path, codec.read(path, "certificate").body)


def test_the_certificate_of_the_measurements_is_proven(accepted):
    assert accepted.certificate().verdict == "refused"
    assert problems(accepted) == []


def test_an_acceptance_that_has_not_ended_certifies_nothing(accepted):
    certificate = accepted.certificate()
    stages = (*certificate.stages, Stage("whole", 1.0, False, ("interrupted: Ctrl-C",)))
    with pytest.raises(DataError, match="the acceptance stopped during collectives"):
        recheck(str(accepted.file("certificate.json")), replace(certificate, stages=stages))


def test_a_changed_byte_of_any_measurement_is_found(accepted):
    chance = random.Random(7)
    for path in files(accepted):
        if path.name == "certificate.json":
            continue
        whole = path.read_bytes()
        for at in {0, len(whole) - 1, *(chance.randrange(len(whole)) for _ in range(5))}:
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            name = path.relative_to(accepted.path).as_posix()
            assert any(one.startswith(f"{name}: changed") for one in problems(accepted)), (name, at)
        path.write_bytes(whole)
    assert problems(accepted) == []


def test_a_changed_byte_of_the_certificate_is_found(accepted, run_ccctl):
    path = accepted.file("certificate.json")
    whole = path.read_bytes()
    chance = random.Random(11)
    for at in {*(chance.randrange(len(whole)) for _ in range(40)), len(whole) - 1}:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert not is_proven(path), at
    path.write_bytes(whole)
    assert is_proven(path)


def is_proven(path):
    """Whether the certificate can be read and nothing is wrong with it."""
    from ccctl.errors import CcctlError

    try:
        return recheck(str(path), codec.read(str(path), "certificate").body) == []
    except (CcctlError, UnicodeDecodeError):
        return False


def test_a_verdict_that_was_sealed_without_measurements_is_found(accepted):
    whole = accepted.file("certificate.json").read_bytes()
    accepted.write_certificate(
        replace(accepted.certificate(), verdict="accepted", culprits=(), reason="fine")
    )
    assert [one.partition(":")[0] for one in problems(accepted)] == ["verdict", "culprits"]
    accepted.file("certificate.json").write_bytes(whole)


@pytest.mark.parametrize("what", ["sample", "cost"])
def test_a_change_is_found_though_its_digest_and_seal_are_made_again(accepted, what):
    name = "samples" if what == "sample" else "profile"
    path, certificate = accepted.file(f"{name}.json"), accepted.file("certificate.json")
    whole, signed = path.read_bytes(), certificate.read_bytes()
    body = accepted.read(name)
    if what == "sample":
        seconds = body.seconds.copy()
        seconds[np.flatnonzero((body.quantity == 0) & (body.src == 3) & (body.dst == 4))] *= 0.5
        accepted.write(name, replace(body, seconds=seconds))
    else:
        beta = body.links.beta_s_per_byte.copy()
        beta[(body.links.src == 3) & (body.links.dst == 4)] *= 1.001
        accepted.write(name, replace(body, links=replace(body.links, beta_s_per_byte=beta)))
    found = accepted.certificate()
    accepted.write_certificate(judged(accepted, found))
    said = problems(accepted)
    path.write_bytes(whole)
    certificate.write_bytes(signed)
    assert said
    assert all(one.startswith("profile.json: link ") for one in said)
    assert any("link 3 → 4" in one and "raw samples give" in one for one in said)
    assert problems(accepted) == []


def test_a_profile_without_raw_samples_is_not_believed(accepted):
    path, certificate = accepted.file("samples.json"), accepted.file("certificate.json")
    whole, signed = path.read_bytes(), certificate.read_bytes()
    path.unlink()
    accepted.write_certificate(accepted.certificate())
    said = problems(accepted)
    path.write_bytes(whole)
    certificate.write_bytes(signed)
    assert said == ["samples.json: missing, the costs in profile.json rest on it"]


def test_missing_and_added_files_are_found(accepted):
    profile = accepted.file("profile.json")
    whole = profile.read_bytes()
    profile.unlink()
    assert problems(accepted) == ["profile.json: missing, the verdict rests on it"]
    profile.write_bytes(whole)
    accepted.keep("evidence/1-more.log", b"NCCL")
    assert problems(accepted) == ["evidence/1-more.log: the certificate does not name it"]
    accepted.file("evidence/1-more.log").unlink()


def test_verify_proves_it_and_refuses_it_with_exit_1(accepted, run_ccctl):
    done = run_ccctl("verify", accepted.file("certificate.json"))
    assert done.returncode == 0, done.stderr
    assert "unchanged: the verdict is 'refused' (" in done.stdout
    health = accepted.file("health.json")
    whole = health.read_bytes()
    health.write_bytes(whole.replace(b"6.8.0", b"6.8.1", 1))
    done = run_ccctl("verify", accepted.file("certificate.json"), "--json")
    health.write_bytes(whole)
    assert done.returncode == 1
    assert json.loads(done.stdout)["findings"] == ["health.json: changed after the certificate was written"]
