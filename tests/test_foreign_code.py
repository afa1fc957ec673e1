"""Every place of the product that could run code out of data, with the reason why it may stand there."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("ccctl", "exec", "probes", "synth", "examples")
# Modules that turn bytes into code or objects, and calls that do.
MODULES = {"multiprocessing", "pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "code"}
CALLS = {"exec", "eval", "compile", "__import__", "import_module"}
METHODS = {
    ("importlib", "import_module"),
    ("yaml", "load"),
    ("torch", "load"),
    ("np", "load"),
    ("numpy", "load"),
}
# Uses of foreign code in each file, with their reasons.
KNOWN = {
    "synth/lang/algorithm_file.py": (
        {"exec", "compile"},
        "a file in the chunk language is the user's program",
    ),
    "exec/program/npy.py": ({"np.load"}, "with allow_pickle=False: arrays of numbers alone"),
    "synth/kernels/compiled_loop.py": (
        {"pickle"},
        "compiled loops, from folders that only their owner can write",
    ),
    "synth/portfolio/worker_pool.py": ({"multiprocessing"}, "pipes that child processes inherit"),
    "exec/launcher/watchdog.py": ({"multiprocessing"}, "waits for sockets, and reads nothing"),
    "exec/adaptive/replanner.py": ({"multiprocessing"}, "a pipe that a child process inherits"),
    "exec/training/backend/background.py": ({"multiprocessing"}, "a pipe that a child process inherits"),
    "exec/records.py": ({"importlib.import_module"}, "modules of ccctl's own packages alone"),
    "exec/launcher/protocol.py": (
        {"importlib.import_module"},
        "the task of a rank, which its environment names and no message",
    ),
    **dict.fromkeys(
        (
            "ccctl/commands/__init__.py",
            "exec/published/__init__.py",
            "probes/detection/merge.py",
            "probes/live/recorded.py",
            "synth/published/__init__.py",
        ),
        ({"import_module"}, "a module out of a table in the source"),
    ),
    **dict.fromkeys(
        (
            "ccctl/artifacts/codec.py",
            "ccctl/render/text/kinds.py",
            "ccctl/render/svg/files.py",
            "ccctl/torch/__init__.py",
            "exec/peers/registry.py",
        ),
        ({"importlib.import_module"}, "a module out of a table in the source"),
    ),
}


# Any use has one of these words; to parse all files takes long.
WORDS = re.compile(rf"\b(?:{'|'.join(MODULES)})\b|\b(?:{'|'.join(CALLS)}|load)\b\s*\(")


def uses(path):
    content = path.read_text()
    for node in ast.walk(ast.parse(content)) if WORDS.search(content) else ():
        if isinstance(node, ast.Import):
            yield from MODULES & {one.name.partition(".")[0] for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            yield from MODULES & {(node.module or "").partition(".")[0]}
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS:
            yield node.func.id
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
            if (name, node.func.attr) in METHODS:
                yield f"{name}.{node.func.attr}"


def test_every_place_that_could_run_foreign_code_is_known():
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    found = {path.relative_to(ROOT).as_posix(): set(uses(path)) for path in paths}
    assert {path: used for path, used in found.items() if used} == {
        path: used for path, (used, _) in KNOWN.items()
    }
