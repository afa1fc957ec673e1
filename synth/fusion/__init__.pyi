from .buckets import Bucket as Bucket, by_size as by_size, by_tensor as by_tensor
from .costs import RingCosts as RingCosts
from .methods import (
    DEFAULT_BUFFER_BYTES as DEFAULT_BUFFER_BYTES,
    METHODS as METHODS,
    Overheads as Overheads,
    fusion_plan as fusion_plan,
)
from .model import Model as Model, shape as shape, shapes as shapes
from .network_costs import ring_costs as ring_costs
from .plan import FusionPlan as FusionPlan
from .timeline import KINDS as KINDS, REDUCE_SCATTER as REDUCE_SCATTER
from .tuning import (
    STRATEGIES as STRATEGIES,
    Strategy as Strategy,
    Tuning as Tuning,
    begun as begun,
    best_plan as best_plan,
)
