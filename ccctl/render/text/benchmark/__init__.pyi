from .breakdown import (
    draw_breakdowns as draw_breakdowns,
    kinds_of as kinds_of,
    largest_difference as largest_difference,
)
from .report import ColumnTable as ColumnTable, draw_foot as draw_foot, draw_head as draw_head
from .side_by_side import draw_changes as draw_changes, draw_side_by_side as draw_side_by_side
