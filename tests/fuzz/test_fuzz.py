"""Every reader under fire for a while; `fuzz_readers.py` goes on for longer by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

INPUTS = 1500  # about twenty seconds; the long run has its own command, see CONTRIBUTING.md
PROGRAM = Path(__file__).with_name("fuzz_readers.py")


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory, FIFOs and /dev/zero are as on Linux")
def test_readers_refuse_what_they_cannot_read(tmp_path):
    command = [sys.executable, str(PROGRAM), "--inputs", str(INPUTS), "--seed", "1", "--workers", "1", "--save", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    told = [
        f"{f['reader']}, number {f['number']} ({f['label']}): {f['what']} {f['where']}, {f['times']} times"
        for f in report["distinct_failures"]
    ]
    assert report["failures"] == 0, "\n".join(told)
    assert done.returncode == 0
    assert all(n > 0 for n in report["inputs_by_reader"].values()), report
    assert all(n > 0 for n in report["read_by_reader"].values()), report  # valid files are among them
