"""Learners in batch and by chunks, against the same work done by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest

from undirected import DTSL, Dataset, ParameterError, StreamedDTSL, cmll, compare_streams, datasets
from undirected.evaluation.published import published
from undirected.evaluation.streams import find_scale, read_all_rows
from undirected.plots.stream import draw_stream, read_metrics


def cut(data, a, b):
    return Dataset(data.domain, data.codes[a:b])


def test_rows_say_what_the_same_work_gives_by_hand(tmp_path):
    data = read_all_rows("digits")
    assert len(data) == sum(len(datasets.load("digits", split)) for split in ("train", "valid", "test"))
    size = -(-len(data) // 4)
    found = compare_streams(["dtsl"], ["digits"], 4, folder=tmp_path)
    batch, stream = found.rows
    assert (batch["mode"], stream["mode"], stream["chunks"], stream["rows"]) == ("batch", "stream", 4, len(data))
    by_hand = DTSL(l1=1, sd=1).fit(cut(data, 0, 3 * size))
    last = cut(data, 3 * size, len(data))
    assert batch["npll"] == pytest.approx(by_hand.network_.pll(last) / 64, abs=1e-6)
    assert batch["cmll"] == pytest.approx(cmll(by_hand.network_, last).value, rel=0.01)
    learner, scores = StreamedDTSL(watch="none", domain=data.domain), []
    for k in range(4):
        chunk = cut(data, k * size, (k + 1) * size)
        if k:
            scores.append(learner.score_many(chunk) / 64)
        learner.learn_many(chunk)
    np.testing.assert_allclose(stream["npll_by_chunk"], scores, atol=1e-9)
    assert stream["npll"] == pytest.approx(np.mean(scores))
    assert stream["npll_last"] == pytest.approx(scores[-1])
    assert stream["n_features"] == len(learner.network_.features)
    again = compare_streams(["dtsl"], ["digits"], 4, folder=tmp_path)
    assert again.rows == found.rows  # seconds, too: nothing was done again
    assert json.loads((tmp_path / "streams.json").read_text())["rows"] == found.rows
    assert "| digits | dtsl | stream |" in (tmp_path / "streams.md").read_text()
    assert "NPLL by chunk" in str(found)


def test_settings_that_make_no_sense_are_told():
    with pytest.raises(ParameterError, match="no stream learner is called 'l1'"):
        compare_streams(["l1"], ["digits"])
    with pytest.raises(ParameterError, match="chunks=1"):
        compare_streams(["dtsl"], ["digits"], 1)
    with pytest.raises(ParameterError, match="too few for chunks"):
        compare_streams(["dtsl"], {"tiny": Dataset(datasets.load("digits").domain, datasets.load("digits").codes[:1])}, 2)


def test_published_values_are_those_of_the_paper_and_find_their_scale():
    assert published("batch_cmll", "clusternet", "plants")[0].value == -2.60
    assert published("stream_cmll", "clusternet", "msweb")[0].value == -61.89
    assert published("n_collected", "gssl", "cr52")[0].value == 2_514_634
    ours = {"npll": -0.25, "cmll": -5.6}
    assert [find_scale(value, ours, 17) for value in (-1.4, -4.3, -5.5, -9.0)] == ["CMLL/4", "PLL", "CMLL", "none"]


def test_pictures_show_every_chunk_and_every_drift(tmp_path):
    seen = []
    learner = StreamedDTSL(watch="none", progress=seen.append)
    for at in range(0, 1000, 200):
        learner.learn_many(cut(datasets.load("digits"), at, at + 200))
    records = [event.to_dict() for event in seen if hasattr(event, "npll")]
    records[3]["drift"] = "the loss rose"
    path = tmp_path / "m.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records) + '{"chunk": 6, "ro')  # cut off by a kill
    read = read_metrics(path)
    assert read == json.loads(json.dumps(records))
    score, features = draw_stream(read).axes
    np.testing.assert_allclose(score.lines[0].get_ydata(), [record["npll"] for record in records[1:]])
    np.testing.assert_allclose(features.lines[-2].get_ydata(), [record["n_features"] for record in records])
    assert [line.get_xdata()[0] for line in score.lines if line.get_label() == "drift"] == [records[3]["total_rows"]]
    draw_stream(read[:1])
