from .limits import beyond as beyond
from .names import collective_of as collective_of
from .read import read_xml as read_xml
from .write import write_xml as write_xml
