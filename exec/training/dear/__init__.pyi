from .bucket_tuning import Retuning as Retuning
from .model_capture import capture as capture
from .optimizer import DistributedOptimizer as DistributedOptimizer
