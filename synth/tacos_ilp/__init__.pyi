from .horizon_search import (
    CLOSE as CLOSE,
    HorizonSearch as HorizonSearch,
    Mechanism as Mechanism,
    copies_to_all as copies_to_all,
)
