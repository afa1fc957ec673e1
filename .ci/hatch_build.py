"""Build hook of the wheel: compile the loops while ccctl is installed, so that no command has to.

Editable installs have no compiled loops, because their sources change: each loop is compiled when it is first
called. The same holds where the loops cannot be compiled; the hook then warns. HATCH_BUILD_NO_HOOKS=true
leaves the hook out.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledLoops(BuildHookInterface):
    """Fills synth/kernels/loops before the files of the wheel are chosen."""

    def dependencies(self) -> list[str]:
        """Return the packages that ccctl needs, since its commands run to compile the loops."""
        return list(self.metadata.core.dependencies)

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the loops, except for an editable install."""
        if version == "editable":
            return
        command = [sys.executable, "-P", "-m", "ccctl.compile_loops"]
        done = subprocess.run(command, env=os.environ | {"PYTHONPATH": self.root}, cwd=self.root)
        if done.returncode:
            self.app.display_warning("the loops are not compiled: users' first commands will take longer")
