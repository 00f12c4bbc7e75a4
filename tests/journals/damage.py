"""Random damages to a journal, from a seed: a bit, a digit, a row, a page, the tail of the file or of a job, an older copy, two mixed."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random

from understudy.orchestrator.chain import Position

TEXTS = (("events", "event"), ("events", "checksum"), ("jobs", "settings"), ("jobs", "request"), ("jobs", "job"), ("events", "job"))
FIGURES = (("events", "now"), ("events", "number"), ("jobs", "number"), ("version", "version"))


def checkpointed(file: Path) -> None:
    """Everything is in this file, and nothing in the one of the write-ahead log, from which it would be read."""
    with closing(sqlite3.connect(file)) as journal:
        journal.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        journal.execute("PRAGMA journal_mode=DELETE")


def bit(file: Path, older: Path, random: Random) -> str:
    data = bytearray(file.read_bytes())
    place, mask = random.randrange(len(data)), 1 << random.randrange(8)
    data[place] ^= mask
    file.write_bytes(data)
    return f"bit {mask:02x} of byte {place}"


def page(file: Path, older: Path, random: Random) -> str:
    data = bytearray(file.read_bytes())
    size = 4096
    place = random.randrange(len(data) // size)
    data[place * size : (place + 1) * size] = random.choice((bytes(size), random.randbytes(size)))
    file.write_bytes(data)
    return f"page {place}"


def truncated(file: Path, older: Path, random: Random) -> str:
    size = random.randrange(file.stat().st_size)
    with file.open("r+b") as opened:
        opened.truncate(size)
    return f"the first {size} bytes are left"


def digit(file: Path, older: Path, random: Random) -> str:
    """Another character in a text, or another figure."""
    with closing(sqlite3.connect(file)) as journal, journal:
        if random.random() < 0.3:
            table, column = random.choice(FIGURES)
            (row,) = random.choice(journal.execute(f"select rowid from {table}").fetchall())
            journal.execute(f"update or ignore {table} set {column} = {column} + ? where rowid = ?", (random.choice((-1, 1, 10)), row))
            return f"{table}.{column} of row {row}"
        table, column = random.choice(TEXTS)
        row, text = random.choice(journal.execute(f"select rowid, {column} from {table} where {column} <> ''").fetchall())
        place = random.randrange(len(text))
        other = random.choice([c for c in '0123456789abcdef"{' if c != text[place]])
        journal.execute(f"update or ignore {table} set {column} = ? where rowid = ?", (text[:place] + other + text[place + 1 :], row))
        return f"{table}.{column} of row {row}, character {place}: {other!r}"


def row(file: Path, older: Path, random: Random) -> str:
    """Rows that are gone, or have changed places."""
    with closing(sqlite3.connect(file)) as journal, journal:
        rows = journal.execute("select rowid, number from events where job = 'job' order by number").fetchall()
        (first, one), (second, two) = sorted(random.sample(rows, 2))
        if random.random() < 0.5:
            journal.execute("delete from events where rowid between ? and ?", (first, min(second, first + 5)))
            return f"events from {one} on are missing"
        journal.execute("update events set number = -1 where rowid = ?", (first,))
        journal.execute("update events set number = ? where rowid = ?", (one, second))
        journal.execute("update events set number = ? where rowid = ?", (two, first))
        return f"events {one} and {two} have changed places"


def tail(file: Path, older: Path, random: Random) -> str:
    with closing(sqlite3.connect(file)) as journal, journal:
        ((last,),) = journal.execute("select max(number) from events where job = 'job'")
        missing = random.randrange(1, last)
        journal.execute("delete from events where job = 'job' and number > ?", (last - missing,))
        return f"the last {missing} events are missing"


def old_copy(file: Path, older: Path, random: Random) -> str:
    shutil.copy(older, file)
    return "an older copy"


def mixed(file: Path, older: Path, random: Random) -> str:
    """Pages of an older copy, or the rows of a journal that has gone on from it in another way."""
    if random.random() < 0.5:
        data, others = bytearray(file.read_bytes()), older.read_bytes()
        size = 4096
        place = random.randrange(min(len(data), len(others)) // size)
        data[place * size : (place + 1) * size] = others[place * size : (place + 1) * size]
        file.write_bytes(data)
        return f"page {place} of an older copy"
    with closing(sqlite3.connect(file)) as journal, journal:
        ((last,),) = journal.execute("select max(number) from events where job = 'job'")
        first = random.randrange(2, last + 1)
        rows = journal.execute("select number, now, event, checksum from events where job = 'job' order by number").fetchall()
        position = Position(first - 1, rows[first - 2][3])
        for number, now, event, _ in rows[first - 1 :]:
            position = position.after(now + 60.0, event)
            change = "update events set now = ?, checksum = ? where job = 'job' and number = ?"
            journal.execute(change, (now + 60.0, position.checksum, number))
        return f"the events from {first} on are of another journal"


Damage = Callable[[Path, Path, Random], str]
DAMAGES: tuple[Damage, ...] = (bit, page, truncated, digit, row, tail, old_copy, mixed)
