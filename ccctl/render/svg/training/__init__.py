"""What planning for training found, as SVG: models, fusion plans, searches, groups, and runs of training."""
