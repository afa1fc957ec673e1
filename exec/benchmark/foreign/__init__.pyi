from .dcgm import dcgm_evidence as dcgm_evidence, is_dcgm as is_dcgm
from .evidence import Evidence as Evidence, worst_first as worst_first
from .flight_recorder import (
    as_timed_calls as as_timed_calls,
    flight_calls as flight_calls,
    flight_recorded as flight_recorded,
    is_flight_pickle as is_flight_pickle,
    is_flight_text as is_flight_text,
)
from .gcm import gcm_evidence as gcm_evidence, is_gcm as is_gcm
from .lateness import Recorded as Recorded, SentMessages as SentMessages
from .nccl_debug import is_nccl_debug as is_nccl_debug, parse_nccl_debug as parse_nccl_debug
from .nccl_inspector import (
    inspected as inspected,
    is_inspector_text as is_inspector_text,
    sends_of as sends_of,
)
from .nccl_log import NcclLog as NcclLog
from .nccl_ras import is_ras as is_ras, ras_recorded as ras_recorded
from .nccl_tests import (
    is_nccl_json as is_nccl_json,
    is_nccl_text as is_nccl_text,
    is_rccl_lines as is_rccl_lines,
    parse_nccl_json as parse_nccl_json,
    parse_nccl_text as parse_nccl_text,
    parse_rccl_lines as parse_rccl_lines,
)
from .nvbandwidth import is_nvbandwidth as is_nvbandwidth, nvbandwidth_evidence as nvbandwidth_evidence
from .osu import is_osu_text as is_osu_text, parse_osu_text as parse_osu_text
from .superbench import is_superbench as is_superbench, superbench_evidence as superbench_evidence
from .timed_calls import Inspected as Inspected, WaitTime as WaitTime, of_calls as of_calls
