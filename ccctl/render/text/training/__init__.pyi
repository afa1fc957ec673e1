from . import fusion as fusion, groups as groups, model as model, training as training, tuning as tuning
from .fusion import figures as figures
from .model import headline as headline
from .training import TrainingTable as TrainingTable, notes as notes
