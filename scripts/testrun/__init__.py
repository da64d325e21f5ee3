"""What scripts/run-tests is made of."""
