from .html_page import PageSection as PageSection, page as page
from .table import tables as tables
