"""Pages generated from the command line itself: man pages, reference pages of the site, completions."""
