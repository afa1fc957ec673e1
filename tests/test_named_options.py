"""Each option that a message, a hint, a docstring or a page names exists in the command it is named for."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from ccctl.main import command_line

ROOT = Path(__file__).parents[1]
PACKAGES = ("ccctl", "exec", "synth", "probes")
# All others name no option.
MODULES = [
    path for package in PACKAGES for path in (ROOT / package).rglob("*.py") if "--" in path.read_text()
]
PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9]")
# A command line within a text: to the end of the sentence, of the code or of the line.
LINE = re.compile(
    r"ccctl (?!ccctl)((?:lab |training )?[a-z]+)\b((?:(?!ccctl |&&)[^;`|'\n]|'[^'\n]*')*?)"
    r"(?=\.(?:\s|$)|[;`|'\n]|&&|ccctl |$)"
)
# Options of programs that are not ours.
OTHERS = {
    "mpirun": "--bind-to --host --map-by --hostfile",
    "srun, sbatch, salloc": "--container-image --cpu-bind --distribution --mpi --no-kill --nodelist --nodes "
    "--ntasks --ntasks-per-node --overlap --wrap",
    "torchrun": "--master-addr --nnodes --node-rank --nproc-per-node",
    "pip": "--force-reinstall --no-binary --no-deps",
    "unshare, setpriv": "--fork --kill-child --mount-proc --pdeathsig --pid --uts",
    "kubectl": "--subresource",
    "docker": "--privileged --shm-size",
    "nvcc, ptxas": "--gpu-architecture --ptxas-options --std",
    "lstopo": "--of --whole-io",
    "rocm-smi": "--showtopo",
    "AstraSim": "--network-configuration --remote-memory-configuration --system-configuration "
    "--workload-configuration",
    "Symbolic Tensor Graph, whose words have underscores": "--dp --micro --num --pp --tp",
    "useradd, systemctl, dpkg": "--create-home --immediate --now --system",
    "fish": "--arguments --command --condition --invert --keep-order --no-files",
    "bash": "--login",
    "CMake and others in pages": "--in",
    "a training script": "--bucket",
}
# Names of custom properties of style sheets look like options.
STYLES = {
    ROOT / "ccctl/render/acceptance_page.py",
    ROOT / "ccctl/render/html_page.py",
    ROOT / "ccctl/render/svg/drawing.py",
}


@cache
def options():
    """The options of each command, by its name; verbs stand behind it."""
    found = {}

    def add(one, name):
        own = {word for parameter in one.params for word in (*parameter.opts, *parameter.secondary_opts)}
        found[name] = own | {"--help"}
        for verb, inner in getattr(one, "commands", {}).items():
            add(inner, f"{name} {verb}".removeprefix("ccctl "))

    add(command_line(), "ccctl")
    return found


@cache
def known():
    scripts = set()
    for path in (ROOT / "benchmarks").glob("*.py"):
        text = path.read_text()
        scripts |= set(OPTION.findall(ast.get_docstring(ast.parse(text)) or ""))
        scripts |= set(re.findall(r"""add_argument\(\s*"(--[a-z0-9-]+)""", text))
    return set().union(*options().values(), scripts, *(words.split() for words in OTHERS.values()))


def texts(path):
    """Strings of a module as they are put together; what stands between the parts of one is {}."""
    tree, inside = ast.parse(path.read_text()), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            inside |= {id(one) for one in ast.walk(node)}
            yield "".join(one.value if isinstance(one, ast.Constant) else "{}" for one in node.values)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.value


def wrong_lines(text):
    """(command, option that it lacks) of the command lines in a text."""
    for line in LINE.finditer(text):
        words = line[1].split()
        name = next((one for one in (line[1], words[0]) if one in options()), None)
        if name is None:
            continue
        lacking = set(OPTION.findall(line[2])) - options()[name]
        # The word after a command with verbs may be an argument.
        yield from ((name, one) for one in sorted(lacking))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_options_in_strings_exist(path):
    if path in STYLES:
        return
    for text in texts(path):
        assert not set(OPTION.findall(text)) - known()
        assert not [*wrong_lines(text)]


@pytest.mark.parametrize(
    "path", sorted((ROOT / "ccctl/commands").rglob("[a-z]*.py")), ids=lambda path: path.stem
)
def test_options_that_a_command_names_without_another_command_are_its_own(path):
    command = list(path.relative_to(ROOT / "ccctl/commands").with_suffix("").parts)
    every = options().items()
    own = set().union(*(named for name, named in every if name.split()[: len(command)] == command))
    others = {"order": {"--hostfile"}, "show": {"--explain"}}.get(path.stem, set())
    elsewhere = set().union(*(words.split() for words in OTHERS.values()))
    for text in texts(path):
        rest = LINE.sub("", text)
        assert not set(OPTION.findall(rest)) - own - others - elsewhere


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_options_in_pages_exist(path):
    text = path.read_text()
    assert not set(OPTION.findall(text)) - known()
    assert not [*wrong_lines(text)]


def test_options_that_do_not_exist_would_be_found():
    assert [*wrong_lines("Fewer chunks may do: ccctl synth --chunk-size.")] == [("synth", "--chunk-size")]
    assert [*wrong_lines("`ccctl lab up --nics 2`, ccctl training stragglers --buy 4ms, ccctl verify -")] == [
        ("lab up", "--nics")
    ]
    assert "--chunk-size" not in known()
