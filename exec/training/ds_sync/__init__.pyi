from .planning import TrainingJob as TrainingJob, equal_links as equal_links, planned_for as planned_for
from .wrapper import DivideAndShuffle as DivideAndShuffle
