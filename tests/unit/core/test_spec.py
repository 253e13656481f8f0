"""A specification's mistakes are told all at once, each with its path, the value and a hint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from optimizer.errors import BadInput, Problem
from optimizer.spec import load_host, load_study, parse_study

EXAMPLES = Path(__file__).parents[3] / "examples"


def good() -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load((EXAMPLES / "demo.yaml").read_text())
    return data


def problems(data: Any) -> dict[str, Problem]:
    with pytest.raises(BadInput) as caught:
        parse_study(data)
    return {p.path: p for p in caught.value.problems}


@pytest.mark.parametrize("name", ["demo.yaml", "kimi-eagle3.yaml"])
def test_examples_are_valid(name: str) -> None:
    spec = load_study((EXAMPLES / name).read_text())
    assert spec.name == name.removesuffix(".yaml")


def test_three_mistakes_are_all_told_with_hints() -> None:
    data = good()
    data["engine"] = "sglng"
    data["budget"]["trails"] = 10
    data["workload"]["preset"] = "five-promts"
    found = problems(data)
    assert found["engine"].value == "sglng"
    assert "sglang" in found["engine"].hint
    assert found["budget.trails"].hint == "did you mean trials?"
    assert "five-prompts" in found["workload.preset"].hint


def test_a_mistake_in_the_space_is_told_with_one_in_the_budget() -> None:
    data = good()
    data["space"]["conditions"].append({"if": "spec-tpye == none", "then_absent": ["threads"]})
    data["budget"]["trials"] = 0
    found = problems(data)
    assert "budget.trials" in found
    assert any(path.startswith("space.conditions") and "spec-type" in p.hint for path, p in found.items())


def test_a_missing_field_and_a_wrong_type_name_their_paths() -> None:
    data = good()
    del data["launch"]["command"]
    data["host"]["ssh"]["port"] = "many"
    found = problems(data)
    assert found["launch.command"].message == "is missing"
    assert found["host.ssh.port"].value == "many"


@pytest.mark.parametrize("name", ["--threads", "thre ads", "a;b", "$(x)"])
def test_flag_names_outside_the_grammar_are_refused(name: str) -> None:
    data = good()
    data["launch"]["flags"] = {name: 1}
    assert any(p.startswith("launch.flags") for p in problems(data))


@pytest.mark.parametrize("name", ["A-B", "1A", "A B", "A=B", ""])
def test_variable_names_outside_the_grammar_are_refused(name: str) -> None:
    data = good()
    data["launch"]["env"] = {name: "1"}
    assert any(p.startswith("launch.env") for p in problems(data))


def test_text_that_is_not_yaml_names_line_and_column() -> None:
    with pytest.raises(BadInput) as caught:
        load_study("name: [unclosed\nengine: sglang\n")
    assert "line" in caught.value.problems[0].path


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "just words"])
def test_yaml_that_is_no_mapping_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="1 problem"):
        load_study(text)


def test_a_false_flag_is_an_absent_flag() -> None:
    data = good()
    data["launch"]["flags"]["metrics"] = False
    assert "metrics" not in parse_study(data).baseline_config()


def test_searched_parameters_of_home_give_way_to_the_suggestion() -> None:
    spec = parse_study(good())
    config = spec.candidate_config({"threads": 1}, {"threads", "flash-attn"})
    assert config["threads"] == 1
    assert config["port"] == 8080
    assert "flash-attn" not in config


def test_a_host_without_a_way_to_reach_it_is_refused() -> None:
    with pytest.raises(BadInput) as caught:
        load_host("name: box\nconnection: ssh\n")
    assert "ssh section" in caught.value.problems[0].message


def test_a_host_needs_exactly_one_kind_of_home() -> None:
    with pytest.raises(BadInput) as caught:
        load_host("name: box\nconnection: local\nhome: {command: [a], systemd_unit: b}\n")
    assert caught.value.problems[0].path == "home"


def test_what_would_only_break_at_night_is_told_at_once() -> None:
    data = good()
    data["seed"] = -1
    data["engine_version"] = 0.10
    data["budget"]["soak_s"] = float("inf")
    data["baseline"] = {"flags": {"--threads": 2}}
    found = problems(data)
    assert {"seed", "engine_version", "budget.soak_s", "baseline.flags"} <= set(found)
    assert "quote it: YAML reads 0.10" in found["engine_version"].message
    assert "without dashes" in found["baseline.flags"].message


@pytest.mark.parametrize("port", ["8080a", 0, 70_000, True])
def test_a_port_that_is_none_is_told(port: object) -> None:
    data = good()
    data["baseline"] = {"flags": {"port": port}}
    assert "the flag port must be a number from 1 to 65535" in problems(data)["(top)"].message


def test_numbers_are_variables_of_the_baseline_as_of_the_launch() -> None:
    data = good()
    data["launch"]["env"] = {"OMP_NUM_THREADS": 2}
    data["baseline"] = {"env": {"OMP_NUM_THREADS": 4}}
    assert parse_study(data).baseline_config()["env.OMP_NUM_THREADS"] == "4"


def test_a_rule_may_name_a_flag_that_only_the_baseline_has() -> None:
    data = good()
    data["baseline"] = {"flags": {"parallel": 2}}
    data["space"]["rules"] = ["parallel * threads <= 8"]
    assert parse_study(data).space.rules == data["space"]["rules"]
