from .algorithm import Algorithm as Algorithm, program as program
from .algorithm_file import compiled_algorithm as compiled_algorithm, is_algorithm as is_algorithm
from .chunks import Chunk as Chunk, chunk as chunk
