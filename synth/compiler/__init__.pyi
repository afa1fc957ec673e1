from .chunk_dag import ASSIGN as ASSIGN, REDUCE as REDUCE, ChunkDag as ChunkDag
from .compile import compiled_program as compiled_program
from .lowering import lower as lower
