"""Pictures as SVG, written by hand: the same bytes each time."""
