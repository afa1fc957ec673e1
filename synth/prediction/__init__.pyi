from .candidates import Table as Table, promising as promising, sort_of as sort_of
from .host_transfers import (
    BOUNCE_BYTES as BOUNCE_BYTES,
    FETCHED_BYTES as FETCHED_BYTES,
    TILE_BYTES as TILE_BYTES,
)
from .run_time import (
    MOST_SENDS as MOST_SENDS,
    is_clearly_sooner as is_clearly_sooner,
    predicted_s as predicted_s,
    prediction as prediction,
    schedule_run_s as schedule_run_s,
    soonest as soonest,
)
