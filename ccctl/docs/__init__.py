"""The pages that are made from the command line itself: man pages and completions."""
