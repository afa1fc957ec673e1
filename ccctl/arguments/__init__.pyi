from .bench_options import NCCL_TESTS_OPTIONS as NCCL_TESTS_OPTIONS, BenchOptions as BenchOptions
from .bench_requests import (
    BenchSetup as BenchSetup,
    Contestant as Contestant,
    contestants as contestants,
    group_elements as group_elements,
    groups_request as groups_request,
    of_selection as of_selection,
    setup_of as setup_of,
)
from .collectives import (
    has_groups as has_groups,
    parse_collectives as parse_collectives,
    read_groups as read_groups,
)
from .counts import uneven_collective as uneven_collective
from .networks import load_network as load_network, network_of as network_of, parse_racks as parse_racks
from .options import (
    MOST_COUNT as MOST_COUNT,
    MOST_RANKS as MOST_RANKS,
    Alpha as Alpha,
    Bandwidth as Bandwidth,
    FamilyOptions as FamilyOptions,
    FileOrFolder as FileOrFolder,
    GeneralOptions as GeneralOptions,
    HoldAlpha as HoldAlpha,
    Hosts as Hosts,
    Json as Json,
    MeasuredDevice as MeasuredDevice,
    NetworkOptions as NetworkOptions,
    Output as Output,
    Page as Page,
    Parameters as Parameters,
    Percentage as Percentage,
    Pictures as Pictures,
    PrometheusFile as PrometheusFile,
    Quiet as Quiet,
    Ranks as Ranks,
    Seed as Seed,
    Spec as Spec,
    TimeoutSeconds as TimeoutSeconds,
    Verbose as Verbose,
    WiringPlan as WiringPlan,
    Without as Without,
    WorldOptions as WorldOptions,
    collective_option as collective_option,
    network_option as network_option,
    refuse_given as refuse_given,
    refuse_unknown as refuse_unknown,
    written_option as written_option,
)
from .proven import (
    as_collective as as_collective,
    check_world as check_world,
    is_listable as is_listable,
    listed as listed,
    proven_program as proven_program,
    read_or_compiled as read_or_compiled,
    refuse_unproven as refuse_unproven,
)
from .redistributions import read_redistribution as read_redistribution
from .run_options import RunOptions as RunOptions
from .synth_options import SynthOptions as SynthOptions
from .topologies import (
    read_or_described as read_or_described,
    read_topologies as read_topologies,
    topology_in as topology_in,
)
