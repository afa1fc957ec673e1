"""Runs code in forks of a Python that has imported numba and compiled with it, but imported nothing of ccctl.

Both together take fifty times as long as to compile a loop of a few lines.
"""

import functools
import json
import subprocess
import sys

__all__ = ["new_python", "numba_forks"]

# Kept bytecode is known by the second in which its source was written, and by the source's length.
_PYTHON = (sys.executable, "-B", "-P", "-c")

_SERVER = """
import json, os, sys, tempfile, traceback
import numba

numba.njit("int64(int64)")(lambda x: x)
for line in sys.stdin:
    environment, code = json.loads(line)
    streams = [tempfile.TemporaryFile("w+") for _ in range(2)]
    if (pid := os.fork()) == 0:
        for number, stream in enumerate(streams, 1):
            os.dup2(stream.fileno(), number)
        os.environ.clear()
        os.environ.update(environment)
        status = 0
        try:
            exec(code, {"__name__": "__main__"})
        except BaseException:
            traceback.print_exc()
            status = 1
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)
    answer = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])]
    for stream in streams:
        stream.seek(0)
        answer.append(stream.read())
        stream.close()
    print(json.dumps(answer), flush=True)
"""


class NumbaForks:
    """A Python that forks for each code, one after the other, and ends with this process."""

    def __init__(self):
        pipe = subprocess.PIPE
        self._server = subprocess.Popen([*_PYTHON, _SERVER], stdin=pipe, stdout=pipe, text=True)

    def run(self, code, environment):
        """Run the code as `new_python` does, but with numba's settings of this process.

        Numba reads only once for which processor it compiles, and whether it compiles at all.
        """
        self._server.stdin.write(json.dumps([dict(environment), code]) + "\n")
        self._server.stdin.flush()
        return subprocess.CompletedProcess(code, *json.loads(self._server.stdout.readline()))


@functools.cache
def numba_forks():
    return NumbaForks()


def new_python(code, environment):
    """Run the code in a Python of its own, to its end."""
    return subprocess.run([*_PYTHON, code], env=environment, capture_output=True, text=True)
