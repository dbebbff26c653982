"""Settings of learners, tried on validation rows."""
