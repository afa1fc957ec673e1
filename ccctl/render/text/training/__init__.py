"""What planning for training found, as text: models, fusion plans and groups."""
