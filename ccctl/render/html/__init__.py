"""Artifacts as one page of HTML that needs no network: findings, pictures, and the numbers behind them."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
