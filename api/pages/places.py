"""What the pages of hosts and windows show: who uses a host and what waits for it, what comes and what was."""

from __future__ import annotations

from typing import Any

from api import views
from api.deps import Services
from api.pages import starters
from api.reports import launch
from api.routes.windows import SHOWN_RUNS, attached
from optimizer.studies import StudyState as S
from storage import hosts, leases, studies, windows

Context = dict[str, Any]
QUEUE = (S.RUNNING, S.STOPPING, S.QUEUED, S.WAITING_WINDOW)
GLANCE = ("gpus", "gpu users", "guard", "home", "engine")
"""Findings of the doctor that are worth a line of their own."""


def host_list(use: Services) -> list[Context]:
    """Hosts with the doctor's last findings."""
    now = use.now()
    with use.db.read() as conn:
        found = [
            (h, leases.get(conn, h.name), studies.list_studies(conn, limit=None, host=h.name, state=list(QUEUE)))
            for h in hosts.list_hosts(conn)
        ]
    shown = []
    for record, lease, queue in found:
        doctor = record.facts.get("doctor") or {}
        findings = doctor.get("findings", [])
        shown.append(
            views.host(record, lease, now)
            | {
                "findings": findings,
                "glance": [f for f in findings if f["check"] in GLANCE and f["level"] != "skipped"],
                "bad": sum(f["level"] in {"warning", "error"} for f in findings),
                "queue": sorted(queue, key=lambda s: (QUEUE.index(S(s.state)), -s.priority, s.created_at)),
                "checked_at": str(doctor.get("checked_at", ""))[:16].replace("T", " "),
                "yaml": starters.to_yaml({k: v for k, v in record.entry.items() if v is not None}),
                "home_line": launch.home_line(record.home),
            }
        )
    return shown


def window_list(use: Services) -> list[Context]:
    """Windows with what comes and what was."""
    with use.db.read() as conn:
        found = [(w, windows.list_runs(conn, w.id, limit=SHOWN_RUNS)) for w in windows.list_windows(conn)]
    return [views.window(w, runs, attached(use, w.id), use.now()) for w, runs in found]
