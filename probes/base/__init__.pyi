from .columns import (
    Bytes as Bytes,
    Floats as Floats,
    Indices as Indices,
    Ints as Ints,
    Longs as Longs,
    Mask as Mask,
    bytes_of as bytes_of,
    floats as floats,
    ints as ints,
    longs as longs,
    offsets as offsets,
    spans as spans,
)
from .errors import (
    CcctlError as CcctlError,
    DataError as DataError,
    LockHeldError as LockHeldError,
    LostRankError as LostRankError,
    MissingInputError as MissingInputError,
    TimeoutExpired as TimeoutExpired,
    UnavailableError as UnavailableError,
    UsageError as UsageError,
    WrongResultsError as WrongResultsError,
    quoted as quoted,
)
from .finite import not_finite as not_finite
from .garbage_collection import gc_paused as gc_paused
from .identifiers import (
    cpu_list as cpu_list,
    cpu_mask as cpu_mask,
    cpu_numbers as cpu_numbers,
    first_number as first_number,
    is_cpu_list as is_cpu_list,
    is_hidden as is_hidden,
    mask_numbers as mask_numbers,
    nccl_guid as nccl_guid,
    normal_bus_id as normal_bus_id,
    plain_guid as plain_guid,
)
from .install_hints import install as install
from .line_tags import without_tags as without_tags
from .numbers import (
    LARGEST as LARGEST,
    LEAST_BETA_S_PER_BYTE as LEAST_BETA_S_PER_BYTE,
    decimal as decimal,
    whole as whole,
)
from .progress import SILENT as SILENT, Progress as Progress, Safekeeping as Safekeeping
from .units import (
    format_rate as format_rate,
    format_size as format_size,
    parse_duration as parse_duration,
    parse_rate as parse_rate,
    parse_rates as parse_rates,
    parse_seconds as parse_seconds,
    parse_size as parse_size,
    parse_sizes as parse_sizes,
)
from .visible_text import (
    shortened as shortened,
    unsteered as unsteered,
    unsteered_json as unsteered_json,
    visible as visible,
)
from .wording import (
    distinct as distinct,
    first_of as first_of,
    meant as meant,
    nearest as nearest,
    plural as plural,
    rate_text as rate_text,
    size_text as size_text,
    some as some,
    without_domain as without_domain,
)
from .xml_text import as_attribute as as_attribute, as_content as as_content
