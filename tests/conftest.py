"""Where real data is looked for, and how hypothesis behaves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"
if "UNDIRECTED_DATA" not in os.environ and BESIDE.is_dir():
    os.environ["UNDIRECTED_DATA"] = str(BESIDE)

settings.register_profile("steady", deadline=None, derandomize=True, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")


@pytest.fixture(scope="session")
def data_folder() -> Path:
    folder = os.environ.get("UNDIRECTED_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("needs the benchmark data: set UNDIRECTED_DATA to its folder")
    return Path(folder)


@pytest.fixture(scope="session")
def spec_folder(data_folder: Path) -> Path:
    folder = data_folder.parent / "spec"
    if not folder.is_dir():
        pytest.skip("needs the folder spec (fixtures with known optima) beside UNDIRECTED_DATA")
    return folder
