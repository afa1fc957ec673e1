from .host_trees import (
    serves_failures as serves_failures,
    synthesize_with_failures as synthesize_with_failures,
)
from .symmetric import (
    SymmetricRequest as SymmetricRequest,
    SymmetricSynthesis as SymmetricSynthesis,
    is_large as is_large,
    synthesize_symmetric as synthesize_symmetric,
)
