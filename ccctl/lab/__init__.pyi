from . import state as state, toml as toml
from .rates import reshaped as reshaped
from .toml import read_lab as read_lab
