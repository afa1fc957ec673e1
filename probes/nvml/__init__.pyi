from . import gpus as gpus
from .call import Driver as Driver, bus_id_of as bus_id_of
from .gpus import MOST_GPUS as MOST_GPUS
from .links import link_states as link_states
from .record import RecordedNvml as RecordedNvml, RecordingNvml as RecordingNvml
