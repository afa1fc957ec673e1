"""Pictures of schedules that list only the sends of one period, or of one orbit."""
