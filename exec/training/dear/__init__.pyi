from .model_capture import capture as capture
from .optimizer import DistributedOptimizer as DistributedOptimizer
