"""What commands print on stdout with `--json`: one document that any reader of JSON takes."""

from __future__ import annotations

import json

import pytest

from api.cli.output import print_json


def test_numbers_that_json_cannot_write_are_null(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": float("nan"), "b": [1.5, float("inf")], "c": {"d": float("-inf")}})
    read = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(name))
    assert read == {"a": None, "b": [1.5, None], "c": {"d": None}}
