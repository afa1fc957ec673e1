"""Pictures of artifacts: text, SVG, traces for Perfetto, metrics for Prometheus."""
