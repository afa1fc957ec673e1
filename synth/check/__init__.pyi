from .groups import examine_groups as examine_groups
from .periodic import check_periodic as check_periodic
from .program import examine as examine, judge as judge
from .schedule import check as check, check_selection as check_selection
from .symmetric import check_symmetric as check_symmetric
from .waits import Waits as Waits, blocked as blocked
from .well_formed import shape as shape
