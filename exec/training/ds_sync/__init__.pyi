from .planning import Job as Job, equal_links as equal_links, planned_for as planned_for
from .wrapper import DSSync as DSSync
