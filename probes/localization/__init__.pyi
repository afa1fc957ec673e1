from .changes import ChangedPart as ChangedPart, changed_parts as changed_parts
from .locate import locate as locate
from .model import Bought as Bought, FabricPlan as FabricPlan, Fault as Fault, FaultKind as FaultKind
from .sentences import describe as describe, remedy_of as remedy_of, summary_of as summary_of
