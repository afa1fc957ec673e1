"""Files and folders, without trust in who wrote them: bounded reading, XML, ownership, locks."""
