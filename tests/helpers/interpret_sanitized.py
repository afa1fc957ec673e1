"""Runs programs on the kernel built with ThreadSanitizer; started by a test with the sanitizer preloaded."""

import sys
from itertools import product

import numpy as np
from cuda_on_host import run_on_host
from sample_schedules import random_schedule, ring_all_reduce
from switch_programs import copied_first

from exec.cuda.kernel.encode import encoded
from exec.program import expected_output
from exec.program.layout import Layout
from synth.compiler.lowering import lower


def main() -> None:
    """Exit with 0 where nothing is wrong; a data race makes the sanitizer exit with 66."""
    programs = [
        lower(ring_all_reduce(3)),
        *(lower(random_schedule("all_reduce", 3, 3, seed)) for seed in range(3)),
    ]
    wrong = 0
    for program, by in [(copied_first(3), "Simple"), *product(programs, ("Simple", "LL", "LL128"))]:
        layout = Layout(program, 300)
        table = encoded(layout, 4, tile_bytes=128, slice_bytes=32, wire_protocol=by)
        inputs = [
            expected_output.given(layout, rank, np.dtype("int32"), "sum") for rank in range(program.ranks)
        ]
        found = run_on_host(table, inputs, "int32", "sum", threads=2, launches=2, flags=sys.argv[1:])
        for rank, output in enumerate(found.outputs):
            wrong += int(
                np.count_nonzero(output != expected_output.expected(layout, rank, np.dtype("int32"), "sum"))
            )
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
