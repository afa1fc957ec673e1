from .interleave import interleaved as interleaved
