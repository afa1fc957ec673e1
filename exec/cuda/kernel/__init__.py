"""GC3's interpreter as one persistent kernel: source, compilation, memory, launch, diagnosis."""
