from .limits import TARGETS as TARGETS, beyond as beyond, limits_of as limits_of
from .names import COLL as COLL, collective_of as collective_of
from .read import read_xml as read_xml
from .write import write_xml as write_xml
