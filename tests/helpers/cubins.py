"""The toolkit's compiler, beside NVRTC."""

import shutil
import subprocess
from importlib.util import find_spec

from exec.cuda.kernel.compile import needs_of

__all__ = ["NVCC", "NVRTC", "by_nvcc"]

NVCC = shutil.which("nvcc")
NVRTC = find_spec("cuda") is not None and find_spec("cuda.bindings.nvrtc") is not None


def by_nvcc(text, architecture, folder):
    """Compile with nvcc; what each kernel needs."""
    source = folder / "kernels.cu"
    source.write_text(text)
    command = [NVCC, "-std=c++17", "-cubin", f"-arch=sm_{architecture}", "-Xptxas", "-v", str(source)]
    done = subprocess.run([*command, "-o", str(folder / "kernels.cubin")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return needs_of(done.stderr)
