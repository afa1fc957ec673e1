from . import fusion as fusion, groups as groups, model as model, training as training
from .training import TrainingTable as TrainingTable, notes as notes
from .tuning import draw as draw
