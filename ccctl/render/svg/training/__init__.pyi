from . import groups as groups, training as training
from .fusion import picture as picture
