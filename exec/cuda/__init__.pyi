from .plan import CudaPlan as CudaPlan
from .select import Wire as Wire
