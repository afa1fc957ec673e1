"""What planning for training found, as text: models and fusion plans."""
