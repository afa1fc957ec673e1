from . import ownership as ownership, temporary_folders as temporary_folders
from .bounded_read import (
    MOST_TEXT_BYTES as MOST_TEXT_BYTES,
    decoded as decoded,
    inflated as inflated,
    open_input as open_input,
    read_bytes as read_bytes,
    read_stream as read_stream,
    read_text as read_text,
)
from .documents import parse_document as parse_document
from .file_cache import FileCache as FileCache, ShippedFiles as ShippedFiles, user_folder as user_folder
from .host_lock import FileLock as FileLock, held as held
from .ownership import opened as opened
from .xml import XmlElement as XmlElement, parse_xml as parse_xml
