"""What commands say at their end: rows as they come, and the ``--json`` object."""
