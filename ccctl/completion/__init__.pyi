from . import words as words
from .answers import answer_shells as answer_shells
from .scripts import SHELLS as SHELLS
