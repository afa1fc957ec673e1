"""One browser for all pages that tests open."""

import pytest
from browser import browser, missing


@pytest.fixture(scope="session")
def browser_tab(tmp_path_factory):
    """A tab in which each test opens its own page; the test is skipped where there is no browser."""
    if lacking := missing():
        pytest.skip(f"needs {', '.join(lacking)}")
    with browser(tmp_path_factory.mktemp("browser")) as tab:
        yield tab
