from . import (
    acceptance as acceptance,
    acceptance_exports as acceptance_exports,
    acceptance_page as acceptance_page,
    html_page as html_page,
    manual_page as manual_page,
    prometheus as prometheus,
    trace as trace,
)
from .chrome_trace import write_trace as write_trace
from .fields import (
    Column as Column,
    Say as Say,
    cells as cells,
    figures as figures,
    print_table as print_table,
)
from .finding import (
    ArtifactFinding as ArtifactFinding,
    findings as findings,
    unproven as unproven,
)
from .junit_xml import Case as Case, junit as junit
from .machine_tree import (
    TreeLine as TreeLine,
    counted as counted,
    device_tree as device_tree,
    fabric_words as fabric_words,
    gib as gib,
    labels_of as labels_of,
)
from .markdown import cell as cell, markdown_table as markdown_table
from .race import race_lines as race_lines
from .units import (
    about as about,
    bandwidth as bandwidth,
    bars as bars,
    percent as percent,
    seconds as seconds,
)
