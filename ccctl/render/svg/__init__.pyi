from .drawing import STYLE as STYLE, Drawing as Drawing, element as element
from .files import (
    NARROW as NARROW,
    SUFFIXES as SUFFIXES,
    WIDE as WIDE,
    WITHOUT_PICTURE as WITHOUT_PICTURE,
    draw as draw,
    write_pictures as write_pictures,
)
from .profile import SLOW as SLOW
from .report import Bounds as Bounds
from .training import iterations as iterations
