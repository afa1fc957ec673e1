from . import matrix as matrix, rocm as rocm
from .rocm import is_json as is_json
