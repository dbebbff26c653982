"""The examples in docstrings run, and say what they say."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import undirected

MODULES = [m.name for m in pkgutil.walk_packages(undirected.__path__, "undirected.") if "_native" not in m.name]


@pytest.mark.parametrize("name", ["undirected", *MODULES])
def test_examples(name):
    results = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert results.failed == 0


@pytest.mark.parametrize(("page", "least"), [("asking.md", 10), ("data.md", 5)])
def test_how_to_pages(page, least):
    path = Path(__file__).resolve().parents[2] / "docs" / page
    results = doctest.testfile(str(path), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert results.attempted >= least
    assert results.failed == 0
