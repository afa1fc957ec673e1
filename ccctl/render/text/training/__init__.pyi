from . import fusion as fusion, groups as groups, model as model, training as training
from .training import Table as Table, notes as notes
from .tuning import draw as draw
