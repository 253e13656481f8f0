"""Optuna's tables are made by one process at a time: the hosts of a new database begin together."""

from __future__ import annotations

import subprocess
import sys

from storage.engine import Database

OPEN = "import sys; from optimizer.search.optuna_storage import open_storage; input(); open_storage(sys.argv[1])"
AT_ONCE = 4


def test_many_that_open_a_new_database_at_once_do_not_collide(db: Database) -> None:
    command = [sys.executable, "-c", OPEN, db.optuna_url]
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(AT_ONCE)
    ]
    for process in started:  # all have imported what they need when the line reaches them
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    told = [process.communicate(timeout=120)[1] for process in started]
    assert [process.returncode for process in started] == [0] * AT_ONCE, told
