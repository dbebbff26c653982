"""Values the papers print, kept in ``published.tsv`` with paper and table."""

from __future__ import annotations

import csv
import functools
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True)
class Paper:
    text: str
    pages: str


PAPERS = {
    "dtsl-2014": Paper("Lowd and Davis, Improving Markov Network Structure Learning Using Decision Trees, JMLR 15 (2014)", "501-532"),
    "gssl-2012": Paper(
        "Van Haaren and Davis, Markov Network Structure Learning: A Randomized Feature Generation Approach, AAAI 2012", "1148-1154"
    ),
    "clusternet": Paper(
        "Chandra, Karande and Khan, A Comparative Study of Markov Network Structure Learning Methods Over Data Streams", ""
    ),
    "treermn-2010": Paper("Lao, Zhu, Liu, Liu and Cohen, Efficient Relational Learning with Hidden Variable Detection, NIPS 2010", ""),
    "blm-2010": Paper("Davis and Domingos, Bottom-Up Learning of Markov Network Structure, ICML 2010", "271-278"),
}


@dataclass(frozen=True)
class Value:
    """A printed value and where it stands."""

    value: float
    paper: str
    table: int

    @property
    def source(self) -> str:
        """In words: the paper with its pages, and the table."""
        paper = PAPERS[self.paper]
        pages = f", pages {paper.pages}" if paper.pages else ""
        return f"{paper.text}{pages}, Table {self.table}"


@functools.cache
def _read_values() -> dict[tuple[str, str, str], list[Value]]:
    text = resources.files("undirected.evaluation").joinpath("published.tsv").read_text("utf8")
    found: dict[tuple[str, str, str], list[Value]] = {}
    for row in csv.DictReader(text.splitlines(), delimiter="\t"):
        value = Value(float(row["value"]), row["paper"], int(row["table"]))
        found.setdefault((row["metric"], row["learner"], row["dataset"]), []).append(value)
    return found


def published(metric: str, learner: str, dataset: str) -> list[Value]:
    """What the papers print, newest paper first; an empty list where they print nothing.

    Metrics: ``npll``, ``ncmll`` (per variable), ``cmll``, ``seconds``, ``structure_seconds``, ``weights_seconds``, ``n_features``,
    ``n_nonzero``, ``mean_length``; of the paper on streams ``batch_cmll`` and ``stream_cmll``, which are on mixed scales, and
    ``n_collected`` features; of the paper on relations ``relational_cll``, ``relational_binary_cll``, ``relational_auc`` (each with
    ``_sd``, a standard deviation over folds), ``dim_theta`` and ``relational_seconds``. Times include tuning in dtsl-2014, and are those of
    the best setting in gssl-2012.
    """
    return _read_values().get((metric, learner, dataset), [])
