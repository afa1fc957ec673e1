from .buffers import Buffers as Buffers
from .checksums import (
    CHECKSUM_FACTOR as CHECKSUM_FACTOR,
    Corruption as Corruption,
    StepSums as StepSums,
    checksum as checksum,
    corruptions as corruptions,
    expected_sums as expected_sums,
)
from .contents import Contents as Contents, contents_of as contents_of
from .dtypes import (
    BFLOAT16 as BFLOAT16,
    DTYPES as DTYPES,
    REDOPS as REDOPS,
    Array as Array,
    combine_of as combine_of,
    divided as divided,
    dtype_name as dtype_name,
    dtype_of as dtype_of,
    neutral_of as neutral_of,
    ufunc_of as ufunc_of,
)
from .layout import (
    Layout as Layout,
    count_fitting as count_fitting,
    count_of as count_of,
    size_bytes_of as size_bytes_of,
)
from .move import Move as Move, Span as Span, moves as moves
from .npy import npy_files as npy_files, read_ranks as read_ranks
from .trace import (
    CONNECTION_BITS as CONNECTION_BITS,
    Connection as Connection,
    KeptRun as KeptRun,
    RankTrace as RankTrace,
    connection_of as connection_of,
)
from .wires import Wire as Wire, Wires as Wires, counters_at as counters_at
