"""The files that an unmodified library loads: measured rules, merged with an older file's rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from exec.library_rules import mpich, nccl, ncclx, openmpi, ucc
from exec.library_rules.choice import AlgorithmTimes, MeasuredSetting, MedianTime, Rule
from exec.library_rules.sweep import OWN, Sweep
from probes.files import read_text
from synth.collective import Kind
from synth.nccl_tuning import TuningPlan

__all__ = ["environment_of", "planned_tuner_file", "rules_writer", "tuner_file"]


def rules_writer(library: str, merge: str | None) -> Callable[[Sweep], str]:
    """Return a function that makes the file of Open MPI or MPICH, merged with the file ``merge``.

    ``merge`` is read at once, so that a malformed file is refused before measuring, which takes minutes.
    """
    text = read_text(merge) if merge else None
    if library == "mpich":
        return partial(_mpich_table, None if text is None else mpich.read_table(text, str(merge)))
    return partial(_openmpi_rules, {} if text is None else openmpi.read_rules(text, str(merge)))


def environment_of(library: str, kinds: tuple[Kind, ...], path: str) -> dict[str, str]:
    """Return the variables that make a library load the file."""
    if library == "mpich":
        return mpich.environment(kinds, path)
    return {
        "OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
        "OMPI_MCA_coll_tuned_priority": "100",
        "OMPI_MCA_coll_tuned_dynamic_rules_filename": path,
    }


def tuner_file(
    tried: Sequence[MeasuredSetting], merge: str | None, to: str, library: str
) -> tuple[str, list[str]]:
    """Return (the text of a tuner file for NCCL, RCCL, NCCLX or UCC, its new lines).

    ``to`` is the format: csv, env (environment variables), or json (only NCCLX). Only the csv file of NCCL
    and RCCL includes the lines of the file ``merge``. UCC has one format, the variables of its configuration.
    """
    if library == "ucc":
        return _ucc_config(tried)
    new = nccl.lines_of(tried)
    old = nccl.read_lines(read_text(merge), merge) if merge else {}
    variable = "NCCLX_TUNER_CONFIG_FILE" if library == "ncclx" else "NCCL_TUNER_CONFIG_FILE"
    notes = [
        f"Tuner file for {library.upper()}: set {variable} to its path"
        + (" and NCCL_TUNER_PLUGIN to the example plugin." if library == "nccl" else "."),
        *(f"Measured by nccl-tests: {table.setting} {table.source}" for table in tried),
    ]
    if to == "env":
        text = "\n".join(nccl.environment(new)) + "\n"
    elif library == "ncclx":
        text = ncclx.json_text(new) if to == "json" else ncclx.csv_text(new, notes)
    else:
        text = nccl.write_lines(nccl.merged(old, new), notes)
    return text, [line for lines in new.values() for line in lines]


def _ucc_config(tried: Sequence[MeasuredSetting]) -> tuple[str, list[str]]:
    tokens = ucc.tokens_of(tried)
    notes = [
        "Configuration of UCC: set UCC_CONFIG_FILE to its path, or the variable below in the environment.",
        *(f"Measured by the OSU benchmarks: {table.setting} {table.source}" for table in tried),
    ]
    lines = [*(f"# {note}" for note in notes), *ucc.variables(tokens)]
    return "\n".join(lines) + "\n", tokens


def planned_tuner_file(plan: TuningPlan) -> str:
    """Return NCCL's tuner file for the choices of a model; the plan must have the number of channels."""
    world = plan.world
    table: nccl.Lines = {}
    for kind, choices in plan.choices.items():
        points = [
            AlgorithmTimes(row.size_bytes, {f"{row.best}:{world.channels}": MedianTime(row.best_us * 1e-6)})
            for row in choices
        ]
        table |= nccl.lines_by_size(kind, points, world.hosts, world.ranks)
    notes = [
        "Tuner file: set NCCL_TUNER_CONFIG_FILE to its path; NCCL also needs NCCL_TUNER_PLUGIN, the plugin.",
        "Chosen by NCCL's own model of time with the rates of these links; not measured.",
    ]
    return nccl.write_lines(table, notes)


def _openmpi_rules(old: openmpi.Table, found: Sweep) -> str:
    table: openmpi.Table = {}
    names: dict[int, dict[int, str]] = {}
    for kind, rules in found.rules().items():
        numbers = found.numbers[kind]
        entries = [openmpi.RuleEntry(rule.from_bytes, numbers.get(rule.algorithm, 0)) for rule in rules]
        table = openmpi.merged(table, openmpi.with_rules(kind, found.ranks, entries))
        names[openmpi.COLLECTIVES[kind]] = {number: name for name, number in numbers.items()}
    notes = [
        f"Dynamic rules of coll/tuned, measured with {found.library} on {found.ranks} ranks of "
        f"{', '.join(found.hosts)}.",
        "To load: set coll_tuned_use_dynamic_rules to 1, coll_tuned_dynamic_rules_filename to this file, and",
        "coll_tuned_priority to 100: otherwise coll/han may serve communicators of several hosts.",
    ]
    return openmpi.write_rules(openmpi.merged(old, table), notes, names)


def _mpich_table(old: mpich.Table | None, found: Sweep) -> str:
    table = found.table if old is None else old
    for kind, rules in found.rules().items():
        taken = tuple(
            Rule(rule.from_bytes, "" if rule.algorithm == OWN else rule.algorithm) for rule in rules
        )
        measured = mpich.MeasuredRules(kind, found.ranks, taken, found.parameters[kind])
        table = mpich.with_rules(table, measured)
    return mpich.write_table(table)
