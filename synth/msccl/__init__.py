"""MSCCL's XML, the exchange format of GC3: read, written, and held to the limits of its runtimes."""
