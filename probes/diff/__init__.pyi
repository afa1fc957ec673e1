from .comparison import Comparison as Comparison, compare as compare
from .groups import Alike as Alike, fold_hosts as fold_hosts
