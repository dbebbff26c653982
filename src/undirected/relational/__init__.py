"""Markov networks of relational data: entities of several types, the links between them, and attributes of both."""

from undirected.relational.data import RelationalData
from undirected.relational.treermn import TreeRMN

__all__ = ["RelationalData", "TreeRMN"]
