from . import lifecycle as lifecycle
from .lifecycle import standing as standing
from .model import (
    LEAST_BYTES_PER_S as LEAST_BYTES_PER_S,
    LEAST_MTU_BYTES as LEAST_MTU_BYTES,
    MOST_BYTES_PER_S as MOST_BYTES_PER_S,
    MOST_DELAY_S as MOST_DELAY_S,
    MOST_HOST_LETTERS as MOST_HOST_LETTERS,
    MOST_HOSTS as MOST_HOSTS,
    MOST_MTU_BYTES as MOST_MTU_BYTES,
    MOST_NICS as MOST_NICS,
    Lab as Lab,
    LabHost as LabHost,
    NicRate as NicRate,
    PairRate as PairRate,
    refuse_name as refuse_name,
)
from .run import FILES as FILES, RUN as RUN, files as files, started as started
