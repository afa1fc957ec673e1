"""What commands do on ranks in several steps: profiles, races of schedules, tuning, adaptive runs."""
