"""Learning from rows that go on coming."""
