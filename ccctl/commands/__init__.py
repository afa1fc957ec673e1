"""The commands in the order in which data passes through them; each module defines one."""

from __future__ import annotations

from collections.abc import Callable

from ccctl.commands.bench import bench
from ccctl.commands.compile import compile  # noqa: A004 - a command is a function of its name
from ccctl.commands.completion import completion
from ccctl.commands.detect import detect
from ccctl.commands.doctor import doctor
from ccctl.commands.examples import examples
from ccctl.commands.explain import explain
from ccctl.commands.fusion import fusion
from ccctl.commands.groups import groups
from ccctl.commands.help import help  # noqa: A004 - a command is a function of its name
from ccctl.commands.lab import lab
from ccctl.commands.manual import manual
from ccctl.commands.order import order
from ccctl.commands.profile import profile
from ccctl.commands.relay import relay
from ccctl.commands.report import report
from ccctl.commands.run import run
from ccctl.commands.schema import schema
from ccctl.commands.show import show
from ccctl.commands.simulate import simulate
from ccctl.commands.synth import synth
from ccctl.commands.train import train
from ccctl.commands.tune import tune
from ccctl.commands.verify import verify
from ccctl.commands.watch import watch

__all__ = ["COMMANDS"]

COMMANDS: tuple[Callable[..., None], ...] = (
    detect,
    profile,
    synth,
    compile,
    verify,
    simulate,
    run,
    bench,
    explain,
    order,
    tune,
    groups,
    fusion,
    train,
    relay,
    watch,
    show,
    report,
    lab,
    doctor,
    schema,
    examples,
    help,
    manual,
    completion,
)
