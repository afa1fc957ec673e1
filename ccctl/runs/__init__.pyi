from .adaptive import run_adaptively as run_adaptively
from .profile import Measurement as Measurement
from .race import Course as Course
from .tuning import resumed as resumed, tuned as tuned
