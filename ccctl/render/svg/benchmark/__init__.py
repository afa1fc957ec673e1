"""Reports of benchmarks as SVG: curves over size, and where the time of a run went."""
