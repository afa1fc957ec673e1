"""Routing: paths and trees through a network so that no link or port is busier than it must be."""
