"""A film club as a small SQLite database: members, films, ratings, friends. It is made up, with a structure to be found."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import numpy as np

from undirected.errors import DataError
from undirected.kernels.types import Array
from undirected.store import check_writable

MEMBERS = """
    Ada Bea Cyd Dan Eva Fay Gil Hal Ida Jan Kai Lea Max Nia Ole Pia Quinn Rae Sam Tea Uma Val Wim Xia Yan Zoe Abel Bert Cleo Dora
    Emil Finn Gina Hugo Inga Joel Kira Liam Mona Nils Olga Paul Ravi Sara Toby Ugo Vera Walt Yoko Zack Anton Berta Carla David Edith
    Frida Georg Hanna Ivan Julia
"""
FIRST = "Silent Broken Golden Last Hidden Paper Winter Electric Lonely Burning Second Distant Little Iron"
SECOND = "River Night Garden Letter Machine Station Promise"
GENRES = ("drama", "thriller", "comedy", "documentary")
N_FILMS, N_RATINGS, N_FRIENDS = 48, 1200, 150
UNKNOWN_SHARE = 0.1  # of ratings that say nothing yet
TABLES = """
CREATE TABLE person (name TEXT PRIMARY KEY, age TEXT NOT NULL);
CREATE TABLE film (title TEXT PRIMARY KEY, genre TEXT NOT NULL, length TEXT NOT NULL);
CREATE TABLE rating (
  person TEXT NOT NULL REFERENCES person, film TEXT NOT NULL REFERENCES film, liked TEXT, PRIMARY KEY (person, film)
);
CREATE TABLE friends (
  one TEXT NOT NULL REFERENCES person, other TEXT NOT NULL REFERENCES person, go_together TEXT NOT NULL, PRIMARY KEY (one, other)
);
"""


def make_film_club(path: str | os.PathLike[str], seed: int = 0) -> None:
    """Write the database to a new file.

    No table tells that some members are easy to please and others are not, and that there are hits, usual films and flops. It shows in the
    ratings, and in which friends go to films together. A tenth of the ratings have no opinion yet.
    """
    if Path(path).exists():
        raise DataError(f"{os.fspath(path)} exists already; name a new file")
    check_writable(path)
    rng, members = np.random.default_rng(seed), MEMBERS.split()
    titles = rng.permutation([f"{one} {two}" for one in FIRST.split() for two in SECOND.split()])[:N_FILMS].tolist()
    easy, quality = rng.random(len(members)) < 0.5, rng.integers(-1, 2, N_FILMS)
    genre = rng.integers(0, len(GENRES), N_FILMS)
    pairs = rng.choice(len(members) * N_FILMS, N_RATINGS, replace=False)
    who, what = pairs // N_FILMS, pairs % N_FILMS
    liked = _draw(rng, np.where(easy[who], 1.8, -1.8) + 2.2 * quality[what] + 0.8 * (genre[what] == 2))
    known = rng.random(N_RATINGS) >= UNKNOWN_SHARE
    numbers = rng.choice(len(members) ** 2, 4 * N_FRIENDS, replace=False)
    one, other = numbers // len(members), numbers % len(members)
    one, other = (side[one < other][:N_FRIENDS] for side in (one, other))
    together = _draw(rng, 2.0 * easy[one] + 2.0 * easy[other] - 2.0)
    young = _draw(rng, np.where(easy, 0.8, -0.8))
    length = rng.random(N_FILMS) < 0.5
    words = ("no", "yes")
    people = [(name, "young" if y else "old") for name, y in zip(members, young, strict=True)]
    films = [(title, GENRES[g], "long" if much else "short") for title, g, much in zip(titles, genre, length, strict=True)]
    opinions = [words[yes] if sure else None for yes, sure in zip(liked.tolist(), known, strict=True)]
    ratings = [(members[p], titles[f], opinion) for p, f, opinion in zip(who, what, opinions, strict=True)]
    friends = [(members[a], members[b], words[yes]) for a, b, yes in zip(one, other, together.tolist(), strict=True)]
    connection = sqlite3.connect(path)
    try:
        connection.executescript(TABLES)
        for table, rows in (("person", people), ("film", films), ("rating", ratings), ("friends", friends)):
            connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)
        connection.commit()
    finally:
        connection.close()


def _draw(rng: np.random.Generator, log_odds: Array) -> Array:
    """Yes or no, with these log-odds of a yes."""
    return np.asarray(rng.random(len(log_odds)) < 1 / (1 + np.exp(-log_odds)))
