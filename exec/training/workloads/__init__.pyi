from .examples import HELD_OUT_OF as HELD_OUT_OF, TABULAR as TABULAR, read_examples as read_examples
from .report import TrainedMode as TrainedMode, TrainingReport as TrainingReport, label_of as label_of
from .request import (
    BACKENDS as BACKENDS,
    MODELS as MODELS,
    MODES as MODES,
    SURVIVING as SURVIVING,
    Mode as Mode,
    TrainRequest as TrainRequest,
)
from .task import require_torch as require_torch
