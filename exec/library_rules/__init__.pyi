from . import mpich as mpich, nccl as nccl, ncclx as ncclx, openmpi as openmpi
from .choice import Rule as Rule
from .nccl import MeasuredSetting as MeasuredSetting, Setting as Setting
from .openmpi import COLLECTIVES as COLLECTIVES
from .sweep import OWN as OWN, Sweep as Sweep, SweepRequest as SweepRequest
