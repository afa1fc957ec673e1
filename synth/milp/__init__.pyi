from .backends import require as require
from .model import Model as Model, Solution as Solution, Status as Status, relative_gap as relative_gap
