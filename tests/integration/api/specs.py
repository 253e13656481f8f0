"""Documents that the tests send."""

from __future__ import annotations

from typing import Any

HOST: dict[str, Any] = {"name": "gpu-box", "connection": "ssh", "ssh": {"alias": "gpu-box"}, "takeover": True}


def spec(name: str = "night", **changes: Any) -> dict[str, Any]:
    """A small valid specification on the registered host."""
    document: dict[str, Any] = {
        "name": name,
        "host": "gpu-box",
        "engine": "llamacpp",
        "launch": {"command": ["llama-server"], "flags": {"model": "/m.gguf", "port": 8080}},
        "space": {"parameters": {"threads": {"int": [1, 8]}}},
        "budget": {"trials": 5},
    }
    return {**document, **changes}


WINDOW: dict[str, Any] = {
    "name": "nights",
    "start_cron": "0 22 * * 1-5",
    "timezone": "Europe/Berlin",
    "until": "06:30",
}
