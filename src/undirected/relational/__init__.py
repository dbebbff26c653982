"""Markov networks of relational data: entities of several types, the links between them, and attributes of both."""
