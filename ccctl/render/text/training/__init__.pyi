from . import fusion as fusion, groups as groups, model as model, training as training, tuning as tuning
from .model import headline as headline
from .training import TrainingTable as TrainingTable, notes as notes
