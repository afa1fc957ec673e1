"""The hook of mkdocs.yml that adds the reference pages: one for each command, and one for artifacts."""

from __future__ import annotations

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from ccctl.docs import markdown
from ccctl.docs.manpages import reference

__all__ = ["on_files"]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each command, and one for artifacts."""
    for page in reference():
        content = markdown.written(page)
        files.append(File.generated(config, markdown.place(page.name, page.number), content=content))
    return files
