from .backends import require as require
from .model import (
    IntegerProgram as IntegerProgram,
    Solution as Solution,
    Status as Status,
    relative_gap as relative_gap,
)
