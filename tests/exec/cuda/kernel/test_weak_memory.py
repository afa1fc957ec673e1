"""The kernel's protocols in Relacy, under every order that the memory model allows, and mutants of them."""

import os

import pytest
from protocol_mutants import ACCESSES, EQUIVALENT, mutants
from weak_memory import COMPILER, RELACY, accesses, explored, model, scenarios

from exec.cuda.kernel.source import kernels

PROTOCOLS = ("Simple", "LL", "LL128")
# `.ci/run` installs both, so that there nothing is left out.
MISSING = " and ".join(
    name for name, here in (("g++", COMPILER), ("Relacy (Debian package relacy-dev)", RELACY)) if not here
)
needs_relacy = pytest.mark.skipif(
    bool(MISSING) and not os.environ.get("CI"),
    reason=f"{MISSING} is not installed" if MISSING else "all is here",
)
# Each mutant that is caught is caught within 268 schedules of some scenario.
SCHEDULES = 300


def executable(by):
    """The model with all mutants: one compilation serves every test."""
    return model(by, mutants(by))


@needs_relacy
@pytest.mark.parametrize(("by", "name"), [(by, name) for by in PROTOCOLS for name in scenarios(by)])
def test_random_schedules_are_right(by, name, capsys):
    found = explored(executable(by), by, scenarios(by)[name], iterations=SCHEDULES)
    with capsys.disabled():
        print(f"\n{by}, {name}: {found.schedules} schedules", end="")
    assert found.right, found.outcome
    assert found.schedules == SCHEDULES


@needs_relacy
@pytest.mark.parametrize(("by", "switches"), [("Simple", "2"), ("LL", "1"), ("LL128", "2")])
def test_all_schedules_with_few_context_switches_are_right(by, switches, capsys):
    found = explored(executable(by), by, scenarios(by)["one place"], search=switches)
    with capsys.disabled():
        print(f"\n{by}, all with {switches} context switches: {found.schedules} schedules", end="")
    assert found.right, found.outcome
    assert found.schedules > 2000


def test_the_model_has_the_orders_and_scopes_of_the_ptx():
    text = kernels("int32", "sum")
    found = accesses(text)
    assert {name: found[name] for name in ACCESSES} == ACCESSES
    weaker = accesses(text.replace("st.release.sys.global.u64", "st.relaxed.gpu.global.u64"))
    assert weaker["release_system"] == ("RELAXED", "DEVICE_WIDE")
    assert accesses(text.replace("ld.volatile.global.v4", "ld.global.v4"))["load_bits"] == ("WEAK", "BLOCK")


def caught(by, mutant):
    """Whether a scenario has a wrong schedule of the mutant."""
    return any(
        not explored(executable(by), by, scenario, mutant=mutant.number, iterations=SCHEDULES).right
        for scenario in scenarios(by).values()
    )


def test_there_are_two_hundred_mutants_and_few_are_equivalent():
    every = [mutant for by in PROTOCOLS for mutant in mutants(by)]
    assert len(every) - sum(mutant.change in EQUIVALENT for mutant in every) >= 200
    assert {mutant.change for mutant in every} >= set(EQUIVALENT)


@needs_relacy
@pytest.mark.parametrize("by", PROTOCOLS)
def test_weaker_orders_and_narrower_scopes_are_caught(by):
    weaker = [mutant for mutant in mutants(by) if mutant.kind == "access"]
    assert len(weaker) >= 12
    assert [mutant.name for mutant in weaker if not caught(by, mutant)] == []


@needs_relacy
@pytest.mark.long
@pytest.mark.parametrize("by", PROTOCOLS)
def test_every_mutant_is_caught_or_proven_equivalent(by):
    alive = [mutant for mutant in mutants(by) if not caught(by, mutant)]
    assert {mutant.change for mutant in alive} == {
        mutant.change for mutant in mutants(by) if mutant.change in EQUIVALENT
    }
