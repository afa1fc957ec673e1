"""Pictures as text: one module for each kind of artifact, and for what commands say of them."""
