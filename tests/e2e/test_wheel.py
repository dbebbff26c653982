"""The wheel where no compiler is found: pure Python, and saying so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_without_a_compiler_the_package_is_pure_python(tmp_path):
    build = [sys.executable, "-m", "pip", "wheel", "-q", str(ROOT), "--no-deps", "-w", str(tmp_path)]
    subprocess.run(build, check=True, env={**os.environ, "CXX": "/bin/false"})
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("py3-none-any.whl")
    target = tmp_path / "installed"
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(target), str(wheel)], check=True)
    code = "import sys; sys.argv = ['undirected', 'doctor', '--json']; from undirected.cli import main; main()"
    env = {**os.environ, "PYTHONPATH": str(target)}
    out = subprocess.run([sys.executable, "-c", code], check=True, env=env, cwd=tmp_path, capture_output=True, text=True).stdout
    report = json.loads(out)
    assert report["kernels"] == "reference"
    assert "compiler" in report["kernels_reason"]
