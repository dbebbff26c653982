"""Files that survive a kill: whole or not at all, each with its owner, torn records mended."""

from __future__ import annotations

import json
import os

import pytest

from undirected.errors import DataError, FormatError
from undirected.store import OwnedFile, Records, digest, write_whole


def test_records_are_found_again_by_their_owner_alone(tmp_path):
    path = tmp_path / "new" / "records.jsonl"
    mine, theirs = Records(path, "me", "a ledger"), Records(path, "you", "a ledger")
    mine.append({"n": 1})
    theirs.append({"n": 2})
    mine.append({"n": 3})
    assert [record["n"] for record in mine.own] == [1, 3]
    assert [record["n"] for record in Records(path, "me", "a ledger").own] == [1, 3]
    assert [record["n"] for record in Records(path, "you", "a ledger").own] == [2]
    assert Records(path, "nobody", "a ledger").own == []


def test_a_record_cut_anywhere_counts_for_nothing(tmp_path):
    """Whatever byte a kill ended at, the records before are there, and the next one is whole."""
    path = tmp_path / "records.jsonl"
    whole = Records(path, "me", "a ledger")
    whole.append({"text": "é"})
    first = len(path.read_bytes())
    whole.append({"text": "later"})
    content = path.read_bytes()
    for end in range(len(content)):
        if content[:end].endswith(b"\xc3"):
            continue  # half of a character: told as unreadable, see below
        path.write_bytes(content[:end])
        found = Records(path, "me", "a ledger")
        assert [record["text"] for record in found.own] == (["é"] if end >= first else [])
        found.append({"text": "new"})
        assert [json.loads(line)["text"] for line in path.read_text().splitlines()] == [*(["é"] if end >= first else []), "new"]


def test_files_of_another_kind_are_refused_and_left_alone(tmp_path):
    path = tmp_path / "notes.txt"
    for content in ("hello\n", "[1]\n", '{"n": 1}\n', "hello"):
        path.write_text(content)
        with pytest.raises(FormatError, match="is not a ledger"):
            Records(path, "me", "a ledger")
        assert path.read_text() == content
    path.write_bytes(bytes(range(128, 256)))
    with pytest.raises(FormatError, match="cannot serve as a ledger"):
        Records(path, "me", "a ledger")


@pytest.mark.parametrize("owner", ["me", {"data": [1, 2], "seed": 3}])
def test_an_owned_file_knows_its_owner(tmp_path, owner):
    file = OwnedFile(tmp_path / "state.json", owner, "a checkpoint", "identity")
    assert file.load() is None
    file.save({"n": 1})
    file.save({"n": 2})
    assert file.load() == file.load_own() == {"identity": owner, "n": 2}
    other = OwnedFile(file.path, type(owner)(), "a checkpoint", "identity")
    assert other.load_own() is None
    with pytest.raises(FormatError, match="other data or with other settings"):
        other.load()
    assert os.listdir(tmp_path) == ["state.json"]


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"owner": 3}', "null"])
def test_a_damaged_file_is_an_error(tmp_path, content):
    path = tmp_path / "state.json"
    path.write_text(content)
    for load in (OwnedFile(path, "me", "a checkpoint").load, OwnedFile(path, "me", "a checkpoint").load_own):
        with pytest.raises(FormatError, match="is not a checkpoint"):
            load()
    assert path.read_text() == content


def test_what_cannot_be_written_changes_nothing(tmp_path):
    path = tmp_path / "state.json"
    write_whole(path, "old")
    with pytest.raises(DataError, match="cannot be written"):
        write_whole(path, "\ud800")
    with pytest.raises(DataError, match="nothing was changed"):
        write_whole(tmp_path / "nowhere" / "state.json", "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["state.json"]


def test_equal_values_have_equal_digests():
    assert digest({"a": 1, "b": [2.5, None]}) == digest({"b": [2.5, None], "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})
