from .report import Bounds as Bounds
