from . import xml as xml
from .exporter import export as export
from .ports import numbered_ports as numbered_ports
from .values import integer as integer, number as number
