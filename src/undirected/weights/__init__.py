"""Weights of features by regularised pseudo-likelihood."""
