from .connections import window_bytes_at_most as window_bytes_at_most
from .interpreter import compile_for as compile_for
from .plan import MpiPlan as MpiPlan
from .shared_memory import shared_array as shared_array
