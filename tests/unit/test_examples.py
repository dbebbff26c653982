"""The examples in docstrings run, and say what they say."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import undirected

MODULES = [m.name for m in pkgutil.walk_packages(undirected.__path__, "undirected.") if "_native" not in m.name]


@pytest.mark.parametrize("name", ["undirected", *MODULES])
def test_examples(name):
    results = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert results.failed == 0
