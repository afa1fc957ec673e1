"""hwloc's XML, read to a topology."""
