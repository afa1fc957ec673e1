from . import nccl as nccl
from .contexts import Contexts as Contexts, role_of as role_of
from .endpoints import Ends as Ends, arena_bases as arena_bases
from .streams import CudaStreams as CudaStreams
