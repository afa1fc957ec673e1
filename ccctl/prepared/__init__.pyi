from .contestant import (
    BenchWorkload as BenchWorkload,
    measured_network as measured_network,
    prepared as prepared,
    request_of as request_of,
)
