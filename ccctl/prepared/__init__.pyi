from .contestant import BenchWorkload as BenchWorkload, prepared as prepared, request_of as request_of
