from . import kfd as kfd, machine as machine, pci_config as pci_config
from .cgroups import cgroups as cgroups
from .net import (
    ERROR_COUNTERS as ERROR_COUNTERS,
    INTERFACE_COUNTERS as INTERFACE_COUNTERS,
    TRANSPORT_COUNTERS as TRANSPORT_COUNTERS,
)
from .record import KERNEL_OPTIONS as KERNEL_OPTIONS, packed as packed, unpack as unpack
from .text import decimal as decimal, lines as lines, number as number, text as text
