from . import packet_trains as packet_trains
from .cuda_copies import host_copies as host_copies
from .link_cost import (
    best_message as best_message,
    best_whole as best_whole,
    better as better,
    looks_slow as looks_slow,
    middle_whole as middle_whole,
    pace as pace,
)
from .packet_trains import Train as Train, Trains as Trains, is_buffered as is_buffered, is_slow as is_slow
from .pairs_file import WantedPairs as WantedPairs, parse_pairs as parse_pairs, resolve as resolve
from .prober import Dose as Dose, PacketTrain as PacketTrain, Prober as Prober
from .rounds import (
    Pair as Pair,
    Waves as Waves,
    doubling_strides as doubling_strides,
    first_fit as first_fit,
    meetings as meetings,
    rings as rings,
    strides as strides,
    waves as waves,
)
from .run_queue import waited_s as waited_s
from .samples import Place as Place, Samples as Samples
from .tcp_segments import sent_and_retransmitted as sent_and_retransmitted
