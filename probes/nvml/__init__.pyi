from . import gpus as gpus
from .record import RecordedNvml as RecordedNvml, RecordingNvml as RecordingNvml
