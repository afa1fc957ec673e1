from . import merge as merge
from .active import probed as probed
from .declared import reconcile as reconcile
from .detector import detect as detect
from .gather import (
    DetectRequest as DetectRequest,
    HostDetection as HostDetection,
    answers_to as answers_to,
    together as together,
)
from .host_edits import Edit as Edit
from .merge import from_file as from_file, side_by_side as side_by_side
from .unknown_links import unknown_nvlinks as unknown_nvlinks
