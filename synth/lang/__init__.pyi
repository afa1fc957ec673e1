from .algorithm import Algorithm as Algorithm, program as program
from .chunks import Chunk as Chunk, chunk as chunk
