"""Artifacts: JSON files of each kind, checked as they are read and written at once or not at all."""
