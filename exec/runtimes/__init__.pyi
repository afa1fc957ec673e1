from .msccl import MSCCL_BUFFERS as MSCCL_BUFFERS, ConnectionBuffer as ConnectionBuffer, run_xml as run_xml
from .results import RuntimeReport as RuntimeReport, expected_output as expected_output
