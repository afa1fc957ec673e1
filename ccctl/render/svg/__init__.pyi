from . import schedule as schedule
from .bar_chart import Bar as Bar, Piece as Piece, bars as bars
from .chart import Chart as Chart, Series as Series, charts as charts, time_axis as time_axis
from .drawing import (
    COLOURS as COLOURS,
    STYLE as STYLE,
    Drawing as Drawing,
    above as above,
    box as box,
    element as element,
    fitted as fitted,
    legend as legend,
    text as text,
    text_width as text_width,
)
from .files import SUFFIXES as SUFFIXES, write_pictures as write_pictures
from .kinds import NARROW as NARROW, WIDE as WIDE, draw as draw
from .profile import SLOW as SLOW
from .schedule import MOST_LANES as MOST_LANES, held as held, in_time as in_time, slots as slots
