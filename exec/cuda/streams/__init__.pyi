from . import nccl as nccl
from .contexts import StreamContexts as StreamContexts, role_of as role_of
from .endpoints import Endpoints as Endpoints, arena_bases as arena_bases
from .streams import CudaStreams as CudaStreams
