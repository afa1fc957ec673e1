from .results import RuntimeReport as RuntimeReport
from .trial import try_in_runtime as try_in_runtime
