"""Data sets by name: the local folder, the cache, and downloads from a server on loopback."""

from __future__ import annotations

import dataclasses
import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from undirected import DataError, DownloadError, TableWarning, datasets
from undirected.data import catalog

CONTENT = b"0,1\n1,0\n1,1\n" * 30_000


class Server:
    """Serves CONTENT for every path; `cut` ends a response early, `tampered` alters a byte. Knows ranges."""

    def __init__(self):
        self.cut, self.tampered, self.requests = None, False, []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.requests.append((self.path, self.headers.get("Range")))
                body = b"9" + CONTENT[1:] if outer.tampered else CONTENT
                first = int(self.headers["Range"].split("=")[1].rstrip("-")) if self.headers.get("Range") else 0
                if first >= len(body):
                    self.send_error(416)
                    return
                self.send_response(206 if first else 200)
                self.send_header("Content-Length", str(len(body) - first))
                self.end_headers()
                self.wfile.write(body[first : outer.cut])

            def log_message(self, *args):
                return

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.http.server_address[1]}"


@pytest.fixture
def server(tmp_path, monkeypatch):
    server = Server()
    sha = hashlib.sha256(CONTENT).hexdigest()
    entry = catalog.Entry("tiny", "Tiny", dict.fromkeys(catalog.SPLITS, 90_000), 2, 0.5, dict.fromkeys(catalog.SPLITS, sha))
    monkeypatch.setattr(catalog, "benchmarks", lambda: {"tiny": entry})
    monkeypatch.setenv("UNDIRECTED_MIRROR", server.url)
    monkeypatch.setenv("UNDIRECTED_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("UNDIRECTED_DATA", raising=False)
    yield server
    server.http.shutdown()
    server.http.server_close()


def test_download_is_checked_cached_and_shown(server):
    seen = []
    paths = datasets.fetch("tiny", progress=lambda name, have, expected: seen.append((name, have, expected)))
    assert [p.read_bytes() for p in paths] == [CONTENT] * 3
    assert seen[-1] == ("tiny.test.data", len(CONTENT), len(CONTENT))
    assert datasets.where("tiny") == "cached"
    assert [path for path, _ in server.requests] == [f"/tiny/tiny.{s}.data" for s in ("train", "valid", "test")]
    assert len(datasets.load("tiny", "valid")) == 90_000
    assert len(server.requests) == 3  # nothing is fetched twice


def test_truncated_download_goes_on_where_it_stopped(server):
    server.cut = 100_000
    with pytest.raises(DownloadError, match="goes on from there"):
        datasets.load("tiny")
    part = catalog.cache_folder() / "tiny" / "tiny.train.data.part"
    assert part.stat().st_size == 100_000
    assert not (catalog.cache_folder() / "tiny" / "tiny.train.data").exists()
    server.cut = None
    assert len(datasets.load("tiny")) == 90_000
    assert server.requests[-1][1] == "bytes=100000-"
    assert not part.exists()


def test_tampered_download_is_thrown_away(server):
    server.tampered = True
    with pytest.raises(DownloadError, match="not the published one"):
        datasets.fetch("tiny")
    assert list((catalog.cache_folder() / "tiny").iterdir()) == []
    server.tampered = False
    assert len(datasets.load("tiny")) == 90_000


def test_a_cached_file_is_checked_again(server):
    (path, *_) = datasets.fetch("tiny")
    path.write_bytes(b"1,0\n" + CONTENT[: len(CONTENT) // 2])
    with pytest.warns(TableWarning, match="fetched again"):
        data = datasets.load("tiny")
    assert path.read_bytes() == CONTENT
    assert len(data) == 90_000


def test_a_download_without_end_is_cut(server, monkeypatch):
    small = dataclasses.replace(catalog.benchmarks()["tiny"], rows=dict.fromkeys(catalog.SPLITS, 1000))
    monkeypatch.setattr(catalog, "benchmarks", lambda: {"tiny": small})
    with pytest.raises(DownloadError, match="more than the 5,000 bytes"):
        datasets.fetch("tiny")
    assert list((catalog.cache_folder() / "tiny").iterdir()) == []


def test_unreachable_server(server, monkeypatch):
    monkeypatch.setenv("UNDIRECTED_MIRROR", "http://127.0.0.1:9")
    with pytest.raises(DownloadError, match="the next try goes on"):
        datasets.fetch("tiny")


def test_unknown_names_and_splits():
    with pytest.raises(DataError, match="no split 'tset'"):
        datasets.load("digits", "tset")
    with pytest.raises(DataError, match="nothing to fetch"):
        datasets.fetch("digits")
    with pytest.raises(DataError, match="Did you mean 'plants'"):
        datasets.fetch("plant")


def test_the_twenty_sets_are_known():
    assert len(catalog.benchmarks()) == 20
    assert catalog.benchmarks()["nltcs"].rows == {"train": 16181, "valid": 2157, "test": 3236}
    assert all(len(sha) == 64 for e in catalog.benchmarks().values() for sha in e.sha256.values())


def test_built_in_digits():
    train, valid, test = (datasets.load("digits", s) for s in ("train", "valid", "test"))
    assert (len(train), len(valid), len(test)) == (1197, 200, 400)
    assert train.domain.is_binary
    assert train.domain == test.domain


def test_local_folder_matches_the_published_files(data_folder):
    """The published text of a split, rebuilt from the local copy, has the published sha256."""
    for name in ("nltcs", "dna"):
        for split in catalog.SPLITS:
            data = datasets.load(name, split)
            text = "".join(",".join(map(str, row)) + "\n" for row in data.codes.tolist())
            assert hashlib.sha256(text.encode()).hexdigest() == catalog.benchmarks()[name].sha256[split]
    assert datasets.where("nltcs") == "local"
    assert "votes84" in datasets.names()
    plants = datasets.load("plants")
    assert plants.domain.is_binary  # although one column is constant in training
    assert int(np.ptp(plants.codes, axis=0).min()) == 0
