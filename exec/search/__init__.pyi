from .task import SearchTask as SearchTask
