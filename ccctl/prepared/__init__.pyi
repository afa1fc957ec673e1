from .contestant import Wanted as Wanted, prepared as prepared, request_of as request_of
