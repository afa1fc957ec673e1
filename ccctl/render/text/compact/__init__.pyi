from . import periodic as periodic, symmetric as symmetric
