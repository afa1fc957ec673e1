from . import mpich as mpich, nccl as nccl, ncclx as ncclx, openmpi as openmpi, ucc as ucc
from .choice import MeasuredSetting as MeasuredSetting, Rule as Rule
from .files import (
    environment_of as environment_of,
    planned_tuner_file as planned_tuner_file,
    rules_writer as rules_writer,
    tuner_file as tuner_file,
)
from .nccl import Setting as Setting
from .openmpi import COLLECTIVES as COLLECTIVES
from .stock_nccl import (
    StockFile as StockFile,
    StockPlan as StockPlan,
    nccl_choice as nccl_choice,
    plan_stock as plan_stock,
)
from .sweep import OWN as OWN, Sweep as Sweep, SweepRequest as SweepRequest
