from .groups import examine_groups as examine_groups
from .program import examine as examine, judge as judge
from .schedule import check as check
from .waits import Waits as Waits, blocked as blocked
from .well_formed import shape as shape
