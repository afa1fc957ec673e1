"""Programs on CUDA devices: GC3's interpreter as one persistent kernel, AdapCC's transmission contexts."""
