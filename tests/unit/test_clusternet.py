"""ClusterNet as a learner of tables: the sizes that its readings of the paper give, and its clusters."""

from __future__ import annotations

import numpy as np
import pytest

from undirected import ClusterNet, Dataset, Domain, FeatureSet, ParameterError
from undirected.evaluation.streams import read_all_rows
from undirected.structure.clusters import Clusters, make_points
from undirected.work import Work

# On all rows of plants with 100 clusters: conjunctions made, and with those of the rows themselves.
COUNTED = {"init": (9_552, 19_533), "union": (49_648, 59_164), "feature": (50_397, 58_923)}


@pytest.mark.parametrize("support", COUNTED)
def test_feature_counts_on_plants_are_those_known_for_each_reading(data_folder, support):
    data = read_all_rows("plants")
    assert len(data) == 23_215
    clusters = Clusters.start(data, 100, 0)
    clusters.add_rows(data)
    clusters.generate(1000, support, 0)
    made, whole = (len(clusters.list_features(with_initial).canonical()) for with_initial in (False, True))
    assert made == pytest.approx(COUNTED[support][0], rel=0.1)
    assert whole == pytest.approx(COUNTED[support][1], rel=0.1)


def test_rows_join_the_nearest_centroid_and_are_counted():
    rng = np.random.default_rng(0)
    domain = Domain.from_sizes([2, 3, 2, 2])
    data = Dataset(domain, np.column_stack([rng.integers(0, k, 300) for k in domain.n_states]))
    clusters = Clusters.start(data, 6, 0)
    clusters.add_rows(data)
    table = data.distinct
    distance = ((make_points(table)[:, None] - clusters.centroids) ** 2).sum(axis=2)
    rows = {
        tuple(domain.base[v] + x for v, x in enumerate(row) if x != clusters.common[v]): k for k, row in enumerate(table.codes.tolist())
    }
    assert clusters.counts.sum() == sum(table.weights[k] for f, k in rows.items() if f)
    for feature, cluster, count in zip(clusters.rows, clusters.row_cluster, clusters.counts, strict=True):
        k = rows[feature]
        assert distance[k, cluster] == pytest.approx(distance[k].min())
        assert count == table.weights[k]


def test_tables_of_many_states_leave_out_the_commonest():
    rng = np.random.default_rng(0)
    data = Dataset(
        Domain.from_sizes([3, 4, 2]),
        np.column_stack([rng.choice(k, 400, p=p) for k, p in ((3, (0.2, 0.7, 0.1)), (4, [0.25] * 4), (2, (0.1, 0.9)))]),
    )
    learner = ClusterNet(n_clusters=4, alpha=50, l1=1).fit(data)
    longer = learner.fit_.features.subset(learner.fit_.features.lengths > 1)
    common = {0: 1, 2: 1}
    variable = data.domain.literal_variable
    for feature in longer:
        assert all(x - data.domain.base[variable[x]] != common.get(int(variable[x])) for x in feature)


def test_settings_out_of_range_are_told():
    data = Dataset(Domain.from_sizes([2, 2]), np.array([[0, 1], [1, 0]]))
    for wrong, words in (({"n_clusters": 0}, "n_clusters=0"), ({"alpha": 1.5}, "alpha=1.5"), ({"support": "best"}, "support='best'")):
        with pytest.raises(ParameterError, match=words):
            ClusterNet(**wrong).propose(data, Work.start())
    assert isinstance(ClusterNet().propose(data, Work.start()).features, FeatureSet)
