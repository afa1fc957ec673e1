from . import kfd as kfd, machine as machine
from .record import packed as packed, unpack as unpack
from .text import decimal as decimal, lines as lines
