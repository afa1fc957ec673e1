from . import codec as codec, json_schema as json_schema
from .arrays import column_dtype as column_dtype, to_plain as to_plain
from .artifact_cache import ArtifactCache as ArtifactCache
from .atomic import (
    PART as PART,
    made_folder as made_folder,
    refuse_unwritable as refuse_unwritable,
    write_atomically as write_atomically,
    write_output as write_output,
)
from .codec import Artifact as Artifact, created as created, load as load, save as save
from .files import (
    exists as exists,
    is_folder as is_folder,
    read_document as read_document,
    read_input as read_input,
)
from .folder import Gathered as Gathered, gather as gather
from .foreign import (
    Dumps as Dumps,
    ForeignFiles as ForeignFiles,
    dumps_in as dumps_in,
    evidence_in as evidence_in,
    logs_in as logs_in,
    read_any as read_any,
    read_files as read_files,
    recorded_in as recorded_in,
    schedule_in as schedule_in,
    sent_in as sent_in,
)
from .json_schema import nested as nested
