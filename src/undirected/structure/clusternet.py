"""ClusterNet: conjunctions generated within clusters of similar rows."""

from __future__ import annotations

from typing import Any, ClassVar

from sklearn.utils import check_random_state

from undirected.data.dataset import Dataset
from undirected.errors import ParameterError, check_number
from undirected.structure.clusters import SUPPORTS, Clusters
from undirected.structure.learner import Grid, Learner
from undirected.structure.proposal import Structure
from undirected.work import MEMORY, Work


class ClusterNet(Learner):
    """Cluster the rows, and in each cluster generate conjunctions from its rows by leaving out literals, one at a time.

    Every row is the conjunction of its variables that are true. In as many rounds as there are variables, every cluster draws
    members, about ``alpha`` in all clusters together, from its rows at first and from what was made of them later; of each member
    one conjunction is made without the literal of most support in the cluster, and one without that of least. All that were made are
    features, with one per variable and state but the first; their weights are learned together. The clusters are found in about
    a second; nearly all the time goes into the weights. `StreamedClusterNet` does the same chunk by chunk.

    Parameters
    ----------
    n_clusters : int
        Clusters of k-means; never more than there are distinct rows.
    alpha : int
        Conjunctions drawn a round in all clusters together.
    support : {"union", "init", "feature"}
        Where literals are counted to find those of most and of least support: among the cluster's rows and what was made of them,
        among its rows alone, or there, but so that every conjunction loses its own best and worst.
    with_initial : bool
        Make features of the rows themselves, too.
    l1, sd : float
        Penalties of the weights; see `undirected.fit_weights`.
    tol, time_budget, threads, memory, progress
        As in `undirected.fit_weights`.
    prune : bool
        Leave features of weight zero out of the network (atomic ones stay).
    bins, missing
        As in `undirected.read_data`.
    domain : Domain, Dataset, MarkovNetwork or path of a network, optional
        The variables and states to code tables with, so that rows with states that the training rows lack can be scored.
    random_state : int, RandomState or None
        The same seed gives the same features for any number of threads.

    Attributes
    ----------
    network_ : MarkovNetwork
    fit_ : WeightFit
    clusters_ : Clusters
        Centroids, and the rows and conjunctions of each cluster.
    generation_seconds_ : float

    Notes
    -----
    Chandra, Karande and Khan, "A Comparative Study of Markov Network Structure Learning Methods Over Data Streams".

    Deviations: (1) the chance to draw from the rows falls from round to round as its purpose asks; the paper's text has the formula
    and says that it rises. (2) Support is counted among all members of a cluster, which gives about as many features as the paper
    reports; ``support="init"`` restores its words. (3) Candidates of a round add up, where the algorithm as printed keeps the last.
    (4) The literal of least support has some; otherwise nothing is ever left out where data are sparse. (5) Tables of more
    than two states: a row's conjunction has the states other than the most frequent ones, and clusters are found among
    rows with a column for every state. (6) Beyond 10,000 distinct rows k-means works on random batches of them. (7) Weights
    are learned to the optimum, not to Libra's early stop; ``time_budget`` stops early.

    Examples
    --------
    >>> from undirected import ClusterNet, datasets
    >>> learner = ClusterNet(n_clusters=10, alpha=100).fit(datasets.load("digits"))
    >>> bool(learner.score(datasets.load("digits", "test")) > -24)
    True
    """

    paper_grid: ClassVar[Grid] = {
        "n_clusters": [100, 50, 200],
        "alpha": [1000, 500, 2000],
        "l1": [1.0, 5.0, 10.0],
        "sd": [0.1, 0.5, 1.0],
    }
    quick_grid: ClassVar[Grid] = {"n_clusters": [100], "alpha": [1000], "l1": [1.0, 5.0], "sd": [0.5]}

    def __init__(
        self,
        n_clusters: int = 100,
        alpha: int = 1000,
        support: str = "union",
        with_initial: bool = False,
        l1: float = 5.0,
        sd: float = 0.5,
        tol: float = 1e-5,
        prune: bool = False,
        bins: int = 4,
        missing: str = "learn",
        threads: int | None = None,
        memory: int = MEMORY,
        time_budget: float | None = None,
        progress: Any = None,
        domain: Any = None,
        random_state: Any = 0,
    ) -> None:
        super().__init__(l1, sd, tol, prune, bins, missing, threads, memory, time_budget, progress, domain)
        self.n_clusters = n_clusters
        self.alpha = alpha
        self.support = support
        self.with_initial = with_initial
        self.random_state = random_state

    def propose(self, data: Dataset, work: Work) -> Structure:
        check_clustering(self.n_clusters, self.alpha, self.support)
        began = work.now()
        seed = int(check_random_state(self.random_state).randint(1 << 31))
        clusters = Clusters.start(data, int(self.n_clusters), seed)
        clusters.add_rows(data)
        clusters.generate(int(self.alpha), self.support, seed)
        features = clusters.list_features(self.with_initial).canonical()
        return Structure(features, {"clusters_": clusters, "generation_seconds_": work.now() - began})


def check_clustering(n_clusters: Any, alpha: Any, support: Any) -> None:
    """Raise unless these are settings of ClusterNet."""
    check_number("n_clusters", n_clusters, 1, whole=True)
    check_number("alpha", alpha, 1, 1 << 30)
    if alpha != int(alpha):
        raise ParameterError(f"alpha={alpha!r}: a whole number of conjunctions is needed")
    if support not in SUPPORTS:
        raise ParameterError(f"support={support!r} is not known; choose one of {', '.join(SUPPORTS)}")
