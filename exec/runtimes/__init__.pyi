from .races import SharedCells as SharedCells, VectorClocks as VectorClocks
from .results import (
    Numbers as Numbers,
    RuntimeReport as RuntimeReport,
    expected_output as expected_output,
)
from .trial import try_in_runtime as try_in_runtime
