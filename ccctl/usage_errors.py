"""Messages for usage errors: what is wrong with a command line, and a likely correction."""

from __future__ import annotations

import re
import sys
from typing import Any

import typer

from probes.base import meant, shortened

__all__ = ["explained"]

# Commands that users of other tools may type, and what they are called here.
_OTHER_COMMANDS = {
    "version": "--version",
    "topo": "detect",
    "topology": "detect",
    "measure": "profile",
    "plan": "synth",
    "check": "verify",
    "plot": "show",
    "view": "show",
    "man": "help",
    "manual": "help",
    "fusion": "training fusion",
    "groups": "training averaging",
    "relay": "training stragglers",
    "train": "training compare",
}
_OTHER_OPTIONS = {
    **dict.fromkeys(("np", "nprocs", "ntasks", "nproc"), "-n"),
    **dict.fromkeys(("numchunks", "nchunks", "chunkcount", "numberofchunks"), "--chunks"),
    "bw": "--bandwidth",
}
# Options of other commands that users may type here, and the advice to give.
_OTHER_WAYS = {
    (
        "tune",
        "--network",
    ): "tune measures, it does not plan: give --hosts or -n, or logs with --for nccl; for a "
    "planned network see ccctl synth --for",
}


def explained(error: typer.TyperException, root: Any) -> tuple[str, str]:
    """Return (error message, hint) for a command line; ``root`` is the group of all commands."""
    context: typer.Context | None = getattr(error, "ctx", None)
    path = context.command_path if context else _typed_commands(root)
    return _message(error, context), f"{_as_argument(error, context)}see {path} --help"


def _message(error: typer.TyperException, context: typer.Context | None) -> str:
    """Return the error message, with a likely correction."""
    if type(error).__name__ == "NoSuchOption":
        # Classes are recognized by name, because typer re-exports neither NoSuchOption nor MissingParameter.
        return _unknown_option(vars(error)["option_name"], context)
    # Limit the length of the user's word, because the patterns below take quadratic time.
    text = shortened(error.format_message().rstrip("."))
    if other := re.match(r"No such command '(.*?)'", text):
        name = _OTHER_COMMANDS.get(other[1].lower())
        return f"{other[0]}; did you mean '{name}'?" if name else text
    if (word := _one_dash(getattr(error, "param", None))) is not None:
        return _unknown_option(word, context)
    text = re.sub(r"is not a valid (int|float)(eger)?( range)?$", _number, text)
    text = re.sub(r"(\S+) is not in the range (?:([^<>]+)<=)?x(?:([<>])=(.+))?$", _outside, text)
    value = next(iter(sys.argv[2:]), "-")
    if type(error).__name__ == "MissingParameter" and "Missing option" in text and value[:1] != "-":
        return f"{text}; did you mean '{vars(error)['param'].opts[-1]} {value[:60]}'?"
    return text


def _number(found: re.Match[str]) -> str:
    return "is not a whole number" if found[1] == "int" else "is not a number"


def _outside(found: re.Match[str]) -> str:
    """Return the message for a number out of range; it names only the limit that is violated."""
    value, low, sign, end = found.groups()
    if low is not None and float(value) < float(low):
        return f"{value} is less than {low}"
    return f"{value} is {'less' if sign == '>' else 'more'} than {end}"


def _typed_commands(group: Any) -> str:
    """Return the commands that the line begins with, such as ``ccctl lab up``.

    Typer does not say for every mistake which command it concerns.
    """
    path = ["ccctl"]
    for word in sys.argv[1:]:
        if word not in getattr(group, "commands", {}):
            break
        group = group.commands[word]
        path.append(word)
    return " ".join(path)


def _one_dash(parameter: Any) -> str | None:
    """Return a word such as -np or -collective, whose first letter was parsed as a short option."""
    flags = tuple(option for option in getattr(parameter, "opts", ()) if len(option) == 2)
    words = (word for word in sys.argv[1:] if flags and word.startswith(flags))
    return next((word for word in words if word[2:3].isalpha()), None)


def _unknown_option(name: str, context: typer.Context | None) -> str:
    """Return the message for an unknown option, with a likely correction."""
    # For a long word after one dash, typer reports only the first letter.
    short = len(name) == 2
    word = next((word for word in sys.argv[1:] if short and word.startswith(name)), name).partition("=")[0]
    if context and context.command.name == "bench" and (known := _instead_of_nccl_tests(name, word)):
        return known
    options = [option for param in context.command.params for option in param.opts] if context else []
    other = _OTHER_OPTIONS.get(re.sub(r"[^a-z]", "", word.lower())) or _same_words(word, options)
    if context and (instead := _OTHER_WAYS.get((context.command.name or "", word))):
        close = instead
    elif other in options:
        close = f"did you mean {other!r}?"
    else:
        close = meant(word, [option for option in (*options, "--help") if option.startswith("--")])
    return f"No such option: {word}{f'; {close}' if close else ''}"


def _same_words(word: str, options: list[str]) -> str:
    """Return the option whose words begin ``word``, or else end it; "" if there is none."""
    typed = word.lower().replace("_", "-").strip("-").split("-")
    parts = {option: option.strip("-").split("-") for option in options if option.startswith("--")}
    inside = [option for option, own in parts.items() if len(own) < len(typed)]
    first = [option for option in inside if typed[: len(parts[option])] == parts[option]]
    last = [option for option in inside if typed[-len(parts[option]) :] == parts[option]]
    return max(first or last, key=len, default="")


def _instead_of_nccl_tests(name: str, word: str) -> str:
    """Return what to use in place of an option of nccl-tests, which is a letter (with a value) or a name."""
    from ccctl.arguments import NCCL_TESTS_OPTIONS

    for known, instead in NCCL_TESTS_OPTIONS.items():
        # nccl-tests has no long options with one dash.
        letter = len(name) == 2 and not word[2:3].isalpha()
        if (letter or name[:2] == "--") and name.lstrip("-") in known.split():
            return f"{name} is an option of nccl-tests: {instead}"
    return ""


def _as_argument(error: Any, context: typer.Context | None) -> str:
    """Return the usage of a positional argument that was given as an option: ``ccctl order NETWORK``."""
    name = getattr(error, "option_name", "").removeprefix("--")
    if context is None or not name:
        return ""
    for param in context.command.params:
        metavar = param.make_metavar(ctx=context) if param.param_type_name == "argument" else ""
        if name.upper() in re.split(r"[^A-Z]+", metavar):
            return f"{context.command_path} {metavar} takes it without an option; "
    return ""
