from . import matrix as matrix, query as query, rocm as rocm
from .rocm import is_json as is_json
