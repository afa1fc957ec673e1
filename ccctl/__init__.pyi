from .artifacts import load as load, save as save

__version__: str
