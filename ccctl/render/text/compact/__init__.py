"""Text of schedules that list a part of their sends: those of one period, or of one orbit."""
