"""``doctor``: what is installed, which kernels work, where data is looked for."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Any

import click

from undirected.cli import common

PACKAGES = ("numpy", "scipy", "scikit-learn", "networkx", "matplotlib", "click", "rich", "pyarrow")


@click.command()
@common.output_options
def doctor(as_json: bool, quiet: bool, debug: bool) -> None:
    """Check the installation: kernels, versions, cores, data folders."""
    from undirected import __version__
    from undirected.data import catalog
    from undirected.kernels import backend, default_threads

    kernels = backend()
    versions: dict[str, str | None] = {}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = None
    folder = catalog.local_folder()
    values: dict[str, Any] = {
        "version": __version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "threads": default_threads(),
        "kernels": kernels.name,
        "kernels_reason": kernels.reason,
        "instruction_set": kernels.module.instruction_set() if kernels.name == "native" else None,
        "packages": versions,
        "data_folder": str(folder) if folder else None,
        "cache_folder": str(catalog.cache_folder()),
        "kernels_agree": _agree(),
    }
    lines = [
        f"undirected {__version__}, Python {values['python']} on {values['machine']}, {values['threads']} cores",
        f"kernels: {kernels.name} ({kernels.reason})",
        "kernels agree with the NumPy reference"
        if values["kernels_agree"]
        else "KERNELS DISAGREE with the NumPy reference: please report this",
        *(f"  {name} {version or 'not installed (optional)'}" for name, version in versions.items()),
        f"data folder (UNDIRECTED_DATA): {folder or 'not set'}",
        f"cache folder: {values['cache_folder']}",
    ]
    if kernels.name == "reference":
        lines.append("everything works, but learning is many times slower than with the compiled kernels")
    common.emit(values, as_json, "\n".join(lines))


def _agree() -> bool:
    """The kernels in use against the reference on a small random problem."""
    import numpy as np

    from undirected.inference.completion import exact_sample
    from undirected.kernels import backend, reference
    from undirected.network.synthetic import random_conjunctions

    truth = random_conjunctions(8, 20, n_states=3, seed=1)
    table = exact_sample(truth, 500, seed=2).distinct
    args = (table.columns, truth.domain.n_states, table.weights, truth.features.start, truth.features.literals, 1 << 20, 1)
    found, expected = (
        m.PseudoLikelihoodTables(*args).evaluate(truth.weights, True, False, False, 1) for m in (backend().module, reference)
    )
    return bool(np.isclose(found[0], expected[0]) and np.allclose(found[1], expected[1]))
