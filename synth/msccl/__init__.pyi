from .limits import (
    ELEMENT_BYTES as ELEMENT_BYTES,
    FIFO as FIFO,
    TARGETS as TARGETS,
    beyond as beyond,
    doubts as doubts,
    granule_bytes as granule_bytes,
    limits_of as limits_of,
    misread_steps as misread_steps,
    never_ends as never_ends,
    uncut_bytes as uncut_bytes,
)
from .names import collective_of as collective_of
from .read import read_xml as read_xml
from .write import separate_reductions as separate_reductions, write_xml as write_xml
