from .folder import AcceptanceFolder as AcceptanceFolder, opened as opened
from .outputs import write_outputs as write_outputs
from .recheck import measured_in as measured_in, recheck as recheck
from .request import AcceptanceRequest as AcceptanceRequest
from .run import AcceptanceRun as AcceptanceRun
from .whole import cost_size as cost_size
