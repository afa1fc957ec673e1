from .locate import locate as locate
from .model import Bought as Bought, FabricPlan as FabricPlan, Fault as Fault, FaultKind as FaultKind
