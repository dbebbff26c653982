"""What tests of streams share: tables to stream, servers on this machine, and processes that are killed."""

from __future__ import annotations

import json
import multiprocessing
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

needs_redis = pytest.mark.skipif(shutil.which("redis-server") is None, reason="needs redis-server (Debian's package of that name)")


def draw_rows(n_rows, n_variables=8, seed=0):
    """Rows of a random network, as lists of texts, with names."""
    rng = np.random.default_rng(seed)
    first = rng.integers(0, 2, n_rows)
    codes = np.empty((n_rows, n_variables), dtype=int)
    for v in range(n_variables):
        codes[:, v] = np.where(rng.random(n_rows) < 0.75, first ^ (v % 2), rng.integers(0, 2, n_rows))
    return [f"c{v}" for v in range(n_variables)], [["no" if x == 0 else "yes" for x in row] for row in codes.tolist()]


def write_csv(path, names, rows):
    path.write_text("\n".join(",".join(row) for row in [names, *rows]) + "\n")
    return path


def find_free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class RedisServer:
    """A server of its own on loopback, that can be stopped and started again with what it held."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, find_free_port()
        self.start()

    def start(self) -> None:
        args = [
            "redis-server",
            "--bind",
            "127.0.0.1",
            "--port",
            str(self.port),
            "--appendonly",
            "yes",
            "--save",
            "",
            "--dir",
            str(self.folder),
        ]
        self.process = subprocess.Popen(args, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.client = self.connect()
        for _ in range(100):
            try:
                self.client.ping()
                return
            except Exception:
                time.sleep(0.05)
        raise RuntimeError("redis-server did not start")

    def connect(self):
        import redis

        return redis.Redis(port=self.port, decode_responses=True)

    def stop(self) -> None:
        self.client.close()
        self.process.terminate()
        self.process.wait(10)

    def address(self, stream, **settings):
        more = "".join(f"&{name}={value}" for name, value in settings.items())
        return f"redis://127.0.0.1:{self.port}/0?stream={stream}{more}"

    def add(self, stream, names, rows):
        with self.client.pipeline(transaction=False) as pipe:
            for row in rows:
                pipe.xadd(stream, dict(zip(names, row, strict=True)))
            pipe.execute()


@contextmanager
def run_redis(folder: Path) -> Iterator[RedisServer]:
    server = RedisServer(folder)
    try:
        yield server
    finally:
        server.stop()


class MockKafka:
    """librdkafka's mock cluster: a broker on loopback inside this process."""

    def __init__(self, topic="rows", partitions=1) -> None:
        from confluent_kafka import Producer

        self.topic, self.partitions = topic, partitions
        self.producer = Producer({"test.mock.num.brokers": 1, "log_level": 0})
        broker = next(iter(self.producer.list_topics(timeout=10).brokers.values()))
        self.server = f"{broker.host}:{broker.port}"

    def add(self, names, rows):
        for k, row in enumerate(rows):
            self.producer.produce(self.topic, json.dumps(dict(zip(names, row, strict=True))).encode(), partition=k % self.partitions)
            self.producer.poll(0)
        assert self.producer.flush(30) == 0

    @property
    def address(self):
        return f"kafka://{self.server}/{self.topic}"


def _learn(kind, params, source, options):
    import undirected
    from undirected.streaming.run import learn_stream

    learn_stream(getattr(undirected, kind)(**params), source, **options)


def kill_often(kind, params, source, options, rng, times, longest):
    """Run a stream in processes of its own and kill each with signal 9 at a random moment; at last one runs to its end. Returns how many
    were killed at work."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["undirected", "undirected.streaming.run", "undirected.streaming.clusternet", "undirected.streaming.dtsl"]
    )
    killed = 0
    while killed < times:
        process = context.Process(target=_learn, args=(kind, params, source, options))
        process.start()
        process.join(float(rng.uniform(0.0, longest)))
        if process.is_alive():
            process.kill()
            process.join()
            killed += 1
        elif process.exitcode == 0:
            return killed
        else:
            raise AssertionError(f"the stream ended with code {process.exitcode}")
    process = context.Process(target=_learn, args=(kind, params, source, options))
    process.start()
    process.join(120)
    assert process.exitcode == 0
    return killed
