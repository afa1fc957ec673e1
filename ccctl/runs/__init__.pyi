from .adaptive import run_adaptively as run_adaptively
from .profile import ProfileRun as ProfileRun
from .race import RaceLauncher as RaceLauncher
from .rows_so_far import BenchRows as BenchRows, TrainingRows as TrainingRows
from .tuning import resumed as resumed, tuned as tuned
