from . import (
    adaptive as adaptive,
    bench as bench,
    declared as declared,
    detect as detect,
    nccl_graphs as nccl_graphs,
    synth as synth,
    watch as watch,
)
from .adaptive import event_line as event_line, finish as finish
from .bench_rows import BenchRows as BenchRows
from .dumps import judge as judge, tell as tell
from .explained import Explained as Explained
from .synth import describe as describe
from .training import TrainingRows as TrainingRows
