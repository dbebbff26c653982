"""Conjunctive features: their text form, and sets of them in flat arrays."""
