from .groups import examine_groups as examine_groups
from .program import examine as examine, judge as judge, stuck_in_chunks as stuck_in_chunks
from .schedule import check as check
from .waits import Waits as Waits, blocked as blocked
from .well_formed import shape as shape
