from .horizon_search import (
    CLOSE as CLOSE,
    Mechanism as Mechanism,
    Search as Search,
    copies_to_all as copies_to_all,
)
