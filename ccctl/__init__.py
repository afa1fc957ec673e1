"""ccctl: from bare wires to the collectives that they can carry best."""

__version__ = "0.1.0"
