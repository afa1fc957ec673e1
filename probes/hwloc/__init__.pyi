from . import machine as machine
