from . import pci_ids as pci_ids
from .bandwidth import Bandwidths as Bandwidths, load as load
from .expected import Expected as Expected, expected_gbs as expected_gbs, link_gbs as link_gbs
from .explanation import Explanation as Explanation, explain as explain
from .lookup import pair_named as pair_named
from .measured_pair import (
    MeasuredPair as MeasuredPair,
    host_named as host_named,
    measured_gbs as measured_gbs,
    measured_pairs as measured_pairs,
)
from .nic_affinity import nearest_nic as nearest_nic, nic_kind as nic_kind
from .path_type import MEANING as MEANING, Paths as Paths, PathType as PathType, key_of as key_of
from .pci_ids import (
    architecture as architecture,
    architecture_of_model as architecture_of_model,
    product_name as product_name,
)
from .pci_tree import (
    Uplink as Uplink,
    chain as chain,
    flat as flat,
    functions as functions,
    is_same_model as is_same_model,
    numa_of as numa_of,
    states_fabric as states_fabric,
    uplink as uplink,
)
from .reasons import PEER_REFUSALS as PEER_REFUSALS, nvlink_of as nvlink_of
from .route import pcie_words as pcie_words
