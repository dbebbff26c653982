"""What every source of a stream must do: rows in order, positions that can be gone back to, and an end."""

from __future__ import annotations

import gzip
import json
import os
import threading
import time

import numpy as np
import pandas as pd
import polars as pl
import pytest

from streams import MockKafka, draw_rows, needs_redis, run_redis, write_csv
from undirected import DataError, Dataset, Domain, read_data
from undirected.errors import FormatError, ParameterError
from undirected.streaming.rows import Unreadable
from undirected.streaming.sources import Options, RowSource, open_stream

NAMES, ROWS = draw_rows(25, n_variables=4, seed=1)


def write_jsonl(path, names, rows):
    path.write_text("".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows))
    return path


@pytest.fixture
def impatient(monkeypatch):
    """Few lines must do to tell how to read them, at once."""
    monkeypatch.setattr("undirected.streaming.files.SETTLE_SECONDS", 0.0)


@pytest.fixture(scope="module")
def redis(tmp_path_factory):
    with run_redis(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(scope="module")
def kafka():
    return MockKafka(topic="conformance")


def make_folder(path):
    for k in range(3):
        write_csv(path / f"part{k}.csv", NAMES, ROWS[10 * k : 10 * k + 10])
    return path


def pack_file(path):
    with gzip.open(path / "rows.csv.gz", "wt") as file:
        file.write("\n".join(",".join(row) for row in [NAMES, *ROWS]) + "\n")
    return path / "rows.csv.gz"


MAKERS = {
    "csv": lambda path: write_csv(path / "rows.csv", NAMES, ROWS),
    "packed": pack_file,
    "jsonl": lambda path: write_jsonl(path / "rows.jsonl", NAMES, ROWS),
    "folder": make_folder,
    "rows": lambda path: RowSource([dict(zip(NAMES, row, strict=True)) for row in ROWS]),
    "pandas": lambda path: RowSource(pd.DataFrame(ROWS, columns=NAMES)),
    "polars": lambda path: RowSource(pl.DataFrame(ROWS, schema=NAMES, orient="row")),
    "redis": None,
    "kafka": None,
}


@pytest.fixture(params=[pytest.param(kind, marks=[needs_redis] if kind == "redis" else []) for kind in MAKERS])
def opener(request, tmp_path):
    """A function that opens the same 25 rows again and again."""
    kind = request.param
    if kind == "redis":
        server = request.getfixturevalue("redis")
        server.client.flushall()
        server.add("rows", NAMES, ROWS)
        return lambda **how: open_stream(server.address("rows"), Options(**how))
    if kind == "kafka":
        broker = MockKafka(topic="rows")
        broker.add(NAMES, ROWS)
        return lambda **how: open_stream(broker.address, Options(**how))
    made = MAKERS[kind](tmp_path)
    return lambda **how: open_stream(MAKERS[kind](tmp_path) if isinstance(made, RowSource) else str(made), Options(**how))


def plain(rows, names):
    """Rows as lists of cells, however they came."""
    return [[row[name] for name in NAMES] if isinstance(row, dict) else list(row) for row in rows]


def read_all(source, size, timeout=5.0):
    out = []
    for _ in range(1000):
        batch = source.read(size, timeout)
        out += batch.rows
        if batch.ended:
            return out
    raise AssertionError("the source does not end")


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_all_rows_come_in_order_and_then_the_end(opener, size):
    source = opener()
    assert plain(read_all(source, size), source.names) == ROWS
    assert source.read(10, 0.0).ended
    source.close()


def test_a_position_is_gone_back_to(opener):
    for n in (0, 1, 10, 13, 25):
        first = opener()
        head = []
        while len(head) < n:
            head += first.read(n - len(head), 5.0).rows
        position = json.loads(json.dumps(first.position))  # as a checkpoint keeps it
        first.close()
        second = opener()
        second.seek(position)
        assert plain(head, first.names) + plain(read_all(second, 4), second.names) == ROWS
        second.close()


def test_what_was_acknowledged_may_be_gone_back_to_by_its_own_position(opener):
    source = opener()
    rows = source.read(10, 5.0).rows
    position = source.position
    source.acknowledge(position)
    source.close()
    again = opener()
    again.seek(json.loads(json.dumps(position)))
    assert plain(rows + read_all(again, 100), None) == ROWS
    again.close()


# -- text
def test_rows_that_cannot_be_read_come_as_such(tmp_path):
    lines = ["a,b", "1,2", '"x,y', "3,4", '5,"6" 7', "8,9"]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    rows = read_all(open_stream(str(tmp_path / "t.csv")), 100)
    assert rows[0] == ["1", "2"]
    assert any(isinstance(row, Unreadable) for row in rows)
    (tmp_path / "t.jsonl").write_text('{"a": 1}\nnothing\n[1]\n7\n\n{"a": 2}\n' + "[" * 100_000 + "\n")
    rows = read_all(open_stream(str(tmp_path / "t.jsonl")), 100)
    assert [row if not isinstance(row, Unreadable) else "?" for row in rows] == [{"a": 1}, "?", [1], "?", {"a": 2}, "?"]


def test_quoted_cells_run_over_lines(tmp_path):
    (tmp_path / "t.csv").write_text('name,b\n"two\nlines",1\n"three, ""quoted""\nand\nmore",2\nplain,3\n')
    whole = [["two\nlines", "1"], ['three, "quoted"\nand\nmore', "2"], ["plain", "3"]]
    assert read_all(open_stream(str(tmp_path / "t.csv")), 100) == whole
    for n in (0, 1, 2):
        first, second = (open_stream(str(tmp_path / "t.csv")) for _ in range(2))
        head = first.read(n, 1.0).rows if n else []
        second.seek(first.position)
        first.close()
        assert head + read_all(second, 100) == whole


def test_bytes_that_are_no_text_and_endless_lines_cost_their_rows_alone(tmp_path, monkeypatch):
    (tmp_path / "t.csv").write_bytes(b"a,b\n1,2\n\xff\xfe,3\n4,5\n")
    rows = read_all(open_stream(str(tmp_path / "t.csv")), 100)
    assert rows[0] == ["1", "2"]
    assert isinstance(rows[1], Unreadable)
    assert "UTF-8" in rows[1].reason
    assert rows[2] == ["4", "5"]
    assert read_all(open_stream(str(tmp_path / "t.csv"), Options(encoding="latin-1")), 100)[1] == ["ÿþ", "3"]
    monkeypatch.setattr("undirected.streaming.text_rows.MOST_LINE_BYTES", 100_000)
    (tmp_path / "l.csv").write_bytes(b"a,b\n1,2\n" + b"x" * 400_000 + b"\n3,4\n")
    rows = read_all(open_stream(str(tmp_path / "l.csv")), 100)
    assert (rows[0], rows[-1]) == (["1", "2"], ["3", "4"])
    assert "longer than" in rows[1].reason
    assert len(rows) == 3


def test_names_and_marks_are_found_out(tmp_path):
    for text, names, first in (
        ("x;y\na;1\nb;2\n", ["x", "y"], ["a", "1"]), ("a|1\nb|2\na|3\n", None, ["a", "1"]), ("x\ty\na\t1\n", ["x", "y"], ["a", "1"]),
        ("\ufeffx,y\na,1\n", ["x", "y"], ["a", "1"]), ("0,1\n1,1\n", None, ["0", "1"]),
    ):  # fmt: skip
        (tmp_path / "t.csv").write_text(text)
        source = open_stream(str(tmp_path / "t.csv"))
        rows = read_all(source, 100)
        assert (source.names, rows[0]) == (names, first)
    (tmp_path / "b.basket").write_text("bread, milk\n\nmilk\n")
    assert read_all(open_stream(str(tmp_path / "b.basket")), 100) == [{"bread", "milk"}, set(), {"milk"}]
    (tmp_path / "t.csv").write_text("1,2\n3,4\n")
    assert read_all(open_stream(str(tmp_path / "t.csv"), Options(header=True)), 10) == [["3", "4"]]


def test_files_of_a_folder_may_have_other_columns(tmp_path):
    write_csv(tmp_path / "a.csv", ["x", "y"], [["1", "2"]])
    write_csv(tmp_path / "b.csv", ["y", "x", "z"], [["4", "3", "5"]])
    assert read_all(open_stream(str(tmp_path)), 100) == [["1", "2"], {"y": "4", "x": "3", "z": "5"}]


def test_sources_that_cannot_be_are_told(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "t.xls").write_text("1")
    (tmp_path / "u.csv").write_bytes("a,b\n1,2\n".encode("utf-16"))
    for source, error, words in (
        (str(tmp_path / "none.csv"), DataError, "there is no file"), (str(tmp_path / "empty"), DataError, "without a file"),
        (str(tmp_path / "t.xls"), FormatError, "--format"), (str(tmp_path / "u.csv"), FormatError, "UTF-16"),
        ("http://127.0.0.1/x", DataError, "the scheme 'http'"), (7, DataError, "not int"), (np.zeros(3), DataError, "two axes"),
        ("redis://127.0.0.1:1/0?stream=s", DataError, "is the server running"),
        ("redis://127.0.0.1:1/0", ParameterError, "name the stream"),
        ("redis://127.0.0.1:1/0?streem=s", ParameterError, "'streem' is not known"),
        ("kafka://127.0.0.1:1/", ParameterError, "name one topic"),
    ):  # fmt: skip
        with pytest.raises(error, match=words):
            open_stream(source)
    with pytest.raises(ParameterError, match="format='xml'"):
        Options(format="xml")
    with pytest.raises(DataError, match=r"redis://me:\*\*\*@127"):
        open_stream("redis://me:secret@127.0.0.1:1/0?stream=s")


def test_another_file_at_the_place_is_noticed(tmp_path):
    path = write_csv(tmp_path / "t.csv", NAMES, ROWS)
    source = open_stream(str(path))
    source.read(5, 1.0)
    position = source.position
    source.close()
    write_csv(path, NAMES, ROWS[::-1])
    source = open_stream(str(path))
    with pytest.raises(DataError, match="is not the file that was read before"):
        source.seek(position)
    source.close()


# -- growing files
def test_a_growing_file_is_followed_and_turned_away_and_cut(tmp_path, impatient):
    path, told = tmp_path / "log.csv", []
    path.write_text("a,b\n1,2\n3,")
    source = open_stream(str(path), Options(follow=True, tell=told.append))
    assert source.read(10, 0.3).rows == [["1", "2"]]
    assert source.read(10, 0.1).rows == []
    with path.open("a") as file:
        file.write("4\n5,6\n")
    assert source.read(10, 2.0).rows == [["3", "4"], ["5", "6"]]
    with path.open("a") as file:
        file.write("7,8\n")
    os.rename(path, tmp_path / "log.csv.1")  # as logrotate does, with a last line that was not read yet
    path.write_text("a,b\n9,10\n")
    seen = []
    for _ in range(20):
        seen += source.read(10, 0.3).rows
        if len(seen) == 2:
            break
    assert seen == [["7", "8"], ["9", "10"]]
    path.write_text("a,b\n")
    with path.open("a") as file:
        file.write("11,12\n")
    path.write_text("a,b\n0,1\n"[:8])
    for _ in range(20):
        rows = source.read(10, 0.3).rows
        if rows:
            break
    assert any("replaced or cut" in text for text in told)
    source.close()


def test_a_file_that_was_turned_away_while_nobody_read_is_read_to_its_end(tmp_path, impatient):
    path = write_csv(tmp_path / "log.csv", NAMES, ROWS[:10])
    source = open_stream(str(path), Options(follow=True))
    head = source.read(6, 1.0).rows
    position = source.position
    source.close()
    os.rename(path, tmp_path / "log.csv.1")
    write_csv(path, NAMES, ROWS[10:])
    source = open_stream(str(path), Options(follow=True))
    source.seek(position)
    out = list(head)
    for _ in range(20):
        out += source.read(100, 0.2).rows
        if len(out) == len(ROWS):
            break
    source.close()
    assert plain(out, NAMES) == ROWS


def test_a_followed_folder_waits_for_more_files(tmp_path, impatient):
    write_csv(tmp_path / "a.csv", NAMES, ROWS[:10])
    source = open_stream(str(tmp_path), Options(follow=True))
    out = source.read(100, 0.3).rows
    assert len(out) == 10

    def write_later():
        time.sleep(0.3)
        write_csv(tmp_path / "b.csv", NAMES, ROWS[10:])

    writer = threading.Thread(target=write_later)
    writer.start()
    out += source.read(100, 5.0).rows
    writer.join()
    source.close()
    assert plain(out, NAMES) == ROWS


def test_a_pipe_is_read_as_it_comes(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)

    def write():
        with path.open("w") as file:
            file.write("a,b\n1,2\n")
            file.flush()
            time.sleep(0.3)
            file.write("3,4\n5,")
            file.flush()
            time.sleep(0.2)
            file.write("6\n")

    writer = threading.Thread(target=write)
    writer.start()
    source = open_stream(str(path))
    assert read_all(source, 10, timeout=0.1) == [["1", "2"], ["3", "4"], ["5", "6"]]
    writer.join()


# -- brokers
@needs_redis
def test_what_another_consumer_left_is_taken_over(redis):
    redis.client.flushall()
    redis.add("s", NAMES, ROWS)
    crashed = open_stream(redis.address("s", consumer="first"))
    crashed.read(8, 2.0)
    crashed.close()
    told = []
    source = open_stream(redis.address("s", consumer="second", claim="0"), Options(tell=told.append))
    rows = plain(read_all(source, 5), NAMES)
    assert sorted(rows) == sorted(ROWS)
    assert "took over 8 entries" in told[0]


@needs_redis
def test_text_in_a_field_and_entries_that_are_gone(redis):
    redis.client.flushall()
    for k in range(5):
        redis.client.xadd("t", {"row": json.dumps({"a": k}), "other": "x"}, id=f"{k + 1}-1")
    redis.client.xadd("t", {"no": "row"})
    source = open_stream(redis.address("t", field="row"))
    rows = read_all(source, 3)
    assert rows[:5] == [{"a": k} for k in range(5)]
    assert "no field 'row'" in rows[5].reason
    position = {**source.position, "learned": [], "last": "0-0"}
    redis.client.xdel("t", "2-1")
    again = open_stream(redis.address("t", field="row"))
    again.seek(position)
    rows = read_all(again, 3)
    assert rows[0] == {"a": 0}
    assert "deleted" in rows[1].reason


@needs_redis
def test_a_server_that_goes_away_comes_back(tmp_path):
    told = []
    with run_redis(tmp_path) as server:
        server.add("s", NAMES, ROWS[:10])
        source = open_stream(server.address("s"), Options(follow=True, tell=told.append))
        rows = source.read(10, 2.0).rows
        server.stop()
        assert source.read(10, 0.5).rows == []
        assert "does not answer" in told[-1]
        server.start()
        server.add("s", NAMES, ROWS[10:])
        for _ in range(20):
            rows += source.read(100, 1.0).rows
            if len(rows) == len(ROWS):
                break
        assert plain(rows, NAMES) == ROWS
        assert "is back after" in told[-1]
        source.close()


def test_partitions_are_read_from_their_own_positions():
    broker = MockKafka(topic="parts", partitions=1)
    broker.add(NAMES, ROWS)
    broker.producer.produce("parts", b"\xff\xfe", partition=0)
    broker.producer.produce("parts", None, partition=0)
    broker.producer.flush(10)
    source = open_stream(broker.address)
    rows = read_all(source, 9)
    assert [isinstance(row, Unreadable) for row in rows[-3:]] == [False, True, True]
    assert source.position["offsets"] == {"0": 27, "1": 0, "2": 0, "3": 0}  # the mock cluster's topics have four partitions
    assert source.measure_lag() == 0
    source.close()
    with pytest.raises(DataError, match="99 is none"):
        open_stream(f"{broker.address}?partitions=99")
    late = open_stream(f"{broker.address}?start=latest")
    assert read_all(late, 5) == []


def test_rows_in_memory_of_all_kinds_are_taken():
    data = read_data(np.array([[0, 1], [1, 0]]))
    assert read_all(RowSource(data), 10) == [["0", "1"], ["1", "0"]]
    assert read_all(RowSource(np.array([[0, 1]])), 10) == [[0, 1]]
    assert read_all(RowSource(iter([{"a": 1}])), 10) == [{"a": 1}]
    assert read_all(RowSource(Dataset(Domain.from_sizes([2]), np.array([[1]]))), 10) == [["1"]]
    source = RowSource([{"a": 1}])
    with pytest.raises(DataError, match="has 1 rows, but 5"):
        source.seek({"rows": 5})


# -- what was once wrong
def test_a_stray_quote_costs_its_own_line(tmp_path):
    lines = [["a", "b"]] + [[f"x{k % 3}", str(k)] for k in range(300)]
    text = [",".join(row) for row in lines]
    text[100] = '"x,99'
    text[200] = 'x"y,199'
    (tmp_path / "t.csv").write_text("\n".join(text) + "\n")
    rows = read_all(open_stream(str(tmp_path / "t.csv")), 7)
    assert len(rows) == 300
    assert [k for k, row in enumerate(rows) if isinstance(row, Unreadable)] == [99]
    assert rows[199] == ['x"y', "199"]
    assert rows[100] == lines[101]


def test_names_one_cell_short_stand_above_row_names(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\nr1,1,2\nr2,2,1\n")
    source = open_stream(str(tmp_path / "t.csv"))
    assert read_all(source, 10) == [["r1", "1", "2"], ["r2", "2", "1"]]
    assert source.names == ["", "a", "b"]


def test_a_file_that_ended_without_a_line_end_may_grow(tmp_path):
    path = tmp_path / "b.basket"
    path.write_text("a, b\nb")
    source = open_stream(str(path))
    assert read_all(source, 10) == [{"a", "b"}, {"b"}]
    position = source.position
    with path.open("a") as file:
        file.write("\nc\n\n")
    source = open_stream(str(path))
    source.seek(position)
    assert read_all(source, 10) == [{"c"}, set()]


def test_files_are_read_in_the_order_of_their_numbers_and_go_on_behind_one_that_is_gone(tmp_path):
    for k in (9, 10, 11):
        write_csv(tmp_path / f"part-{k}.csv", ["k"], [[f"r{k}"]] * 2)
    source = open_stream(str(tmp_path))
    assert [row[0] for row in source.read(3, 1.0).rows] == ["r9", "r9", "r10"]
    position, told = source.position, []
    source.close()
    (tmp_path / "part-9.csv").unlink()
    (tmp_path / "part-10.csv").unlink()
    source = open_stream(str(tmp_path), Options(tell=told.append))
    source.seek(position)
    assert [row[0] for row in read_all(source, 10)] == ["r11", "r11"]
    assert "is gone" in told[0]


def test_what_was_added_before_a_file_was_turned_away_is_read(tmp_path, impatient, monkeypatch):
    path = write_csv(tmp_path / "log.csv", NAMES, ROWS[:5])
    source = open_stream(str(path), Options(follow=True))
    assert len(source.read(5, 1.0).rows) == 5
    real, done = source._is_over, []

    def turn_away_in_between():
        if not done:
            done.append(True)
            with path.open("a") as file:
                file.write(",".join(ROWS[5]) + "\n")
            os.rename(path, tmp_path / "log.csv.1")
            write_csv(path, NAMES, ROWS[6:8])
        return real()

    monkeypatch.setattr(source, "_is_over", turn_away_in_between)
    out = []
    for _ in range(10):
        out += source.read(10, 0.3).rows
    source.close()
    assert plain(out, NAMES) == ROWS[5:8]


def test_a_packed_file_may_still_be_written_in_a_followed_folder(tmp_path, impatient):
    whole = gzip.compress(("\n".join(",".join(row) for row in [NAMES, *ROWS]) + "\n").encode())
    path = tmp_path / "a.csv.gz"
    path.write_bytes(b"")
    source = open_stream(str(tmp_path), Options(follow=True))
    out = source.read(100, 0.2).rows
    for part in (whole[: len(whole) // 2], whole):
        path.write_bytes(part)
        for _ in range(5):
            out += source.read(100, 0.2).rows
    source.close()
    assert plain(out, NAMES) == ROWS


@needs_redis
def test_live_consumers_keep_what_is_theirs(redis):
    redis.client.flushall()
    redis.add("s", NAMES, ROWS)
    one, two = (open_stream(redis.address("s", consumer=name, claim="1")) for name in "ab")
    mine = plain(one.read(10, 1.0).rows, NAMES)
    for _ in range(6):
        time.sleep(0.3)
        one._take_again(0)
        two._take_again(0)
    theirs = plain(read_all(two, 4), NAMES)
    mine += plain(read_all(one, 4), NAMES)
    assert sorted(mine + theirs) == sorted(ROWS)
    assert len(mine + theirs) == len(ROWS)


@needs_redis
def test_entries_that_are_no_text_and_time_to_stop(redis, tmp_path):
    redis.client.flushall()
    redis.client.xadd("s", {"a": b"\xff", "b": "1"})
    redis.client.xadd("s", {"a": "ä", "b": "1"})
    rows = read_all(open_stream(redis.address("s")), 5)
    assert rows[0].reason == "the entry is not UTF-8 text"
    assert rows[1] == {"a": "ä", "b": "1"}
    with run_redis(tmp_path) as server:
        stopping = []
        source = open_stream(server.address("s"), Options(stop=lambda: bool(stopping)))
        server.stop()
        stopping.append(True)
        began = time.monotonic()
        source.acknowledge({"learned": ["1-1"]})
        assert time.monotonic() - began < 5
        source.close()
        server.start()
