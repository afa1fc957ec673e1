from .certificate import (
    Certificate as Certificate,
    Cost as Cost,
    Culprit as Culprit,
    Spares as Spares,
    Stage as Stage,
    Verdict as Verdict,
    WholeRow as WholeRow,
)
from .evidence import (
    Evidence as Evidence,
    evidence_of as evidence_of,
    is_evidence as is_evidence,
    read_evidence as read_evidence,
)
