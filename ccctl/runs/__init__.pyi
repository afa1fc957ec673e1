from .adaptive import run_adaptively as run_adaptively
from .profile import ProfileRun as ProfileRun
from .race import RaceLauncher as RaceLauncher
from .tuning import resumed as resumed, tuned as tuned
