from .certificate import (
    Certificate as Certificate,
    Cost as Cost,
    Culprit as Culprit,
    Spares as Spares,
    Stage as Stage,
    Verdict as Verdict,
    WholeRow as WholeRow,
)
