from .html_page import Part as Part, page as page
from .table import tables as tables
