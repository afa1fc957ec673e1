from .host_trees import around_failures as around_failures, serves_failures as serves_failures
from .symmetric import fastest_symmetric as fastest_symmetric, is_large as is_large
