from .adaptive import Session as Session
from .benchmark import Report as Report
from .launcher import launch as launch
from .stages import bench as bench, run as run
