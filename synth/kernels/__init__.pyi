from .bitset import (
    Words as Words,
    add as add,
    contains as contains,
    dice_of as dice_of,
    lowest as lowest,
    throw as throw,
)
from .compiled_loop import (
    BASELINES as BASELINES,
    all_compiled as all_compiled,
    compiled as compiled,
    compiled_always as compiled_always,
    fitting_loops as fitting_loops,
    machine_address as machine_address,
    machine_code as machine_code,
)
from .copying import copy_into as copy_into
from .event_queue import (
    Calendar as Calendar,
    calendar_of as calendar_of,
    enter as enter,
    pop as pop,
    push as push,
    take as take,
)
from .link_candidates import (
    LinkState as LinkState,
    after as after,
    in_turns as in_turns,
    is_free as is_free,
    link_state as link_state,
    occupy as occupy,
    offer as offer,
    shuffled as shuffled,
)
from .merge_sort import argsorted as argsorted
from .stored_loops import (
    COMPILE_ALL as COMPILE_ALL,
    HIDE_SHIPPED as HIDE_SHIPPED,
    SHIPPED_LOOPS as SHIPPED_LOOPS,
    cache_folder as cache_folder,
    loop_store as loop_store,
)
