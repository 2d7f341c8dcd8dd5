"""Enrichment from a database: one connection per task, opened in open() and closed in close().

Shows a class with arguments (`functools.partial`), and what happens to tuples whose look-up fails: they become dead
letters with the error beside them, and the run goes on.
"""

import sqlite3
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import tailrace as tr


class LookUp:
    def __init__(self, path: str) -> None:
        self.path = path

    def open(self, context: tr.Context) -> None:
        # A task opens in one thread and may run in another, so SQLite is told not to insist on the same one.
        self.connection = sqlite3.connect(f"file:{self.path}?mode=ro", uri=True, check_same_thread=False)

    def process(self, order: dict[str, Any]) -> dict[str, Any]:
        row = self.connection.execute("SELECT name FROM users WHERE id = ?", (order["user"],)).fetchone()
        if row is None:
            raise LookupError(f"no user {order['user']}")
        return {**order, "name": row[0]}

    def close(self) -> None:
        self.connection.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "users.db")
        with sqlite3.connect(path) as database:
            database.execute("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT)")
            database.executemany("INSERT INTO users VALUES (?, ?)", [(1, "Ada"), (2, "Grace"), (3, "Edsger")])
        database.close()

        topology = tr.Topology("enrichment")
        orders = topology.source("orders", tr.from_iterable([{"order": n, "user": n % 4} for n in range(8)]))
        named = orders.map("look_up", partial(LookUp, path), tasks=4, kind="blocking", on_error="dead_letter")
        good, bad = tr.to_list(), tr.to_list()
        named.sink("out", good)
        named.dead_letters.sink("failed", bad)
        topology.run(workers=2).awaitTermination()

    for row in sorted(good.values, key=lambda row: row["order"]):
        print(f"order {row['order']}: {row['name']}")
    for letter in sorted(bad.values, key=lambda letter: letter["value"]["order"]):
        print(f"order {letter['value']['order']}: {letter['error']}")


if __name__ == "__main__":
    main()
