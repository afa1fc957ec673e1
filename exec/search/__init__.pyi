from .task import Search as Search
