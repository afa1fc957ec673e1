from . import matrix as matrix, query as query, rocm as rocm
from .query_xml import GpuQuery as GpuQuery, read_query as read_query
from .rocm import is_json as is_json
