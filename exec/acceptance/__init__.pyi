from .certificate import (
    Certificate as Certificate,
    Cost as Cost,
    Culprit as Culprit,
    Spares as Spares,
    Stage as Stage,
    Verdict as Verdict,
    WholeRow as WholeRow,
)
from .compare import Changes as Changes, WholeChange as WholeChange, changes as changes
from .verdict import Measured as Measured, Terms as Terms, judge as judge
