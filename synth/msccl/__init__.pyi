from .limits import (
    FIFO as FIFO,
    TARGETS as TARGETS,
    altered as altered,
    beyond as beyond,
    doubts as doubts,
    limits_of as limits_of,
    never_ends as never_ends,
    whole_bytes as whole_bytes,
)
from .names import collective_of as collective_of
from .read import read_xml as read_xml
from .write import unfused as unfused, write_xml as write_xml
