"""Reading workloads: what is built, and that every mistake is told with its path."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from optimizer.bench.plan import arrivals, level_requests, warmup_requests
from optimizer.bench.workload import FIVE_PROMPTS, from_spec
from optimizer.errors import BadInput


def problems(data: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(BadInput) as caught:
        from_spec(data)
    return {p.path: p.message for p in caught.value.problems}


def test_the_default_is_five_prompts_of_five_kinds() -> None:
    workload = from_spec({})
    assert [p.kind for p in workload.prompts] == list(FIVE_PROMPTS)
    assert workload.concurrency == (1,) and workload.cache == "cold" and workload.temperature == 0
    assert len({p.messages[0]["content"] for p in workload.prompts}) == 5
    assert all(len(p.messages[0]["content"]) > 200 for p in workload.prompts)


def test_the_fingerprint_follows_what_is_asked_and_nothing_else() -> None:
    base = from_spec({"max_tokens": 64}).fingerprint
    assert from_spec({"max_tokens": 64, "request_timeout_s": 9, "slo": {"ttft_ms": 5}}).fingerprint == base
    changed = [{"max_tokens": 65}, {"concurrency": 8}, {"cache": "warm"}, {"repeats": 2}, {"ignore_eos": True}]
    changed += [{"arrival_rate_s": 2}, {"json_schema": True}, {"waves": 2}, {"warmup_requests": 3}, {"temperature": 1}]
    prints = {from_spec({"max_tokens": 64, **c}).fingerprint for c in changed}
    assert len(prints) == len(changed) and base not in prints


def test_every_mistake_is_told_at_once() -> None:
    told = problems(
        {
            "preset": "five-promts",
            "max_tokens": 0,
            "concurrency": [1, 1],
            "repeats": "3",
            "cache": "hot",
            "temperature": float("nan"),
            "slo": {"ttft": 5},
            "concurency": 3,
        }
    )
    paths = {"preset", "max_tokens", "concurrency", "repeats", "cache", "temperature", "slo.ttft", "concurency"}
    assert set(told) == paths


def test_hints_name_the_nearest_field() -> None:
    with pytest.raises(BadInput) as caught:
        from_spec({"preset": "five-promts", "concurency": 3})
    assert [p.hint for p in caught.value.problems] == ["did you mean five-prompts?", "did you mean concurrency?"]


@pytest.mark.parametrize("value", [True, 1.5, "8", [], [0], [1, "2"], None])
def test_concurrency_takes_whole_numbers_only(value: Any) -> None:
    if value is None:
        assert from_spec({"concurrency": None}).concurrency == (1,)
    else:
        assert "concurrency" in problems({"concurrency": value})


def test_jsonl_lines_become_prompts(tmp_path: Path) -> None:
    rows = [
        {"prompt": "Say hello.", "max_tokens": 5, "kind": "prose"},
        {"messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Why?"}], "name": "why"},
    ]
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(json.dumps(r) for r in rows) + "\n\n", "utf-8")
    workload = from_spec({"jsonl": str(path), "max_tokens": 77})
    assert workload.name == "mine.jsonl"
    assert [(p.name, p.kind, p.max_tokens) for p in workload.prompts] == [("prose-1", "prose", 5), ("why", "other", 77)]
    assert workload.prompts[1].messages[0] == {"role": "system", "content": "Be short."}


def test_bad_jsonl_lines_are_told_by_number(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(
        '{"prompt": "ok"}\n{nope\n{"prompt": "a", "messages": []}\n[1]\n{"prompt": "b", "max": 3}\n', "utf-8"
    )
    told = problems({"jsonl": str(path)})
    assert set(told) == {"jsonl line 2", "jsonl line 2.prompt", "jsonl line 3", "jsonl line 4.max"} or len(told) == 4
    assert "jsonl" in problems({"jsonl": str(tmp_path / "missing.jsonl")})
    (tmp_path / "empty.jsonl").write_text("", "utf-8")
    assert "jsonl line" in problems({"jsonl": str(tmp_path / "empty.jsonl")})


def test_two_prompts_of_one_name_are_refused() -> None:
    assert "prompts" in problems({"prompts": [{"name": "a", "prompt": "x"}, {"name": "a", "prompt": "y"}]})


def test_two_sources_are_refused() -> None:
    assert "jsonl" in problems({"preset": "five-prompts", "jsonl": "x.jsonl"})


def test_random_tokens_are_seeded() -> None:
    section = {"preset": "random-tokens", "input_tokens": 50, "prompt_count": 4}
    first, again, other = from_spec(section), from_spec(section), from_spec({**section, "seed": 1})
    assert first == again and first.fingerprint != other.fingerprint
    assert [len(p.messages[0]["content"].split()) for p in first.prompts] == [50] * 4
    assert first.ignore_eos


def test_schema_requests_go_through_chat() -> None:
    workload = from_spec({"json_schema": True})
    assert [p.name for p in workload.prompts if p.json_schema] == ["json"]
    body = json.loads(level_requests(workload, 1, engine="vllm", model="m")[3].body)
    assert body["response_format"]["json_schema"]["schema"]["type"] == "array"
    assert "api" in problems({"json_schema": True, "api": "completions"})


def test_a_level_has_three_requests_for_each_stream() -> None:
    workload = from_spec({"concurrency": [1, 16]})
    assert len(level_requests(workload, 1, engine="vllm", model="")) == 5
    assert len(level_requests(workload, 16, engine="vllm", model="")) == 50
    assert len(level_requests(from_spec({"requests_per_level": 7}), 16, engine="vllm", model="")) == 7
    assert len(level_requests(from_spec({"repeats": 3}), 1, engine="vllm", model="")) == 15


def test_cold_requests_differ_by_salt_or_by_switch() -> None:
    workload = from_spec({"repeats": 2})
    salted = [
        json.loads(r.body)["messages"][0]["content"] for r in level_requests(workload, 1, engine="vllm", model="")
    ]
    assert len(set(salted)) == 10, "no prompt is asked twice in the same words"
    again = [json.loads(r.body)["messages"][0]["content"] for r in level_requests(workload, 1, engine="vllm", model="")]
    assert again == salted, "every restart is asked the same"
    plain = [json.loads(r.body) for r in level_requests(workload, 1, engine="llamacpp", model="")]
    assert all(b["cache_prompt"] is False for b in plain)
    assert len({b["messages"][0]["content"] for b in plain}) == 5
    warm = [json.loads(r.body) for r in level_requests(from_spec({"cache": "warm"}), 1, engine="llamacpp", model="")]
    assert all(b["cache_prompt"] for b in warm)


def test_warm_up_fills_every_stream_and_shows_no_measured_prompt() -> None:
    workload = from_spec({"concurrency": [16], "max_tokens": 64})
    warm = warmup_requests(workload, 16, engine="vllm", model="")
    assert len(warm) == 16
    measured = {p.messages[0]["content"] for p in workload.prompts}
    assert not any(json.loads(r.body)["messages"][0]["content"] in measured for r in warm)
    assert warmup_requests(from_spec({"warmup_requests": 0}), 16, engine="vllm", model="") == []


def test_each_dialect_has_its_body() -> None:
    def body(api: str, engine: str) -> Any:
        return json.loads(level_requests(from_spec({"api": api, "max_tokens": 9}), 1, engine=engine, model="m")[0].body)

    assert body("chat", "sglang")["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    assert "continuous_usage_stats" not in body("chat", "openai")["stream_options"]
    assert "cache_prompt" not in body("chat", "vllm")
    assert isinstance(body("completions", "vllm")["prompt"], str)
    assert body("generate", "sglang")["sampling_params"]["max_new_tokens"] == 9
    assert body("completion", "llamacpp")["n_predict"] == 9


def test_arrivals_are_seeded_and_of_the_rate() -> None:
    workload = from_spec({"arrival_rate_s": 10, "seed": 4})
    times = arrivals(workload, 2000)
    assert times is not None and times[0] == 0 and times == sorted(times) and times == arrivals(workload, 2000)
    assert times[-1] == pytest.approx(200, rel=0.1)
    assert arrivals(from_spec({}), 5) is None


def test_fields_that_say_nothing_with_these_prompts_are_mistakes() -> None:
    inline = {"prompts": [{"prompt": "x"}]}
    assert "json_schema" in problems({**inline, "json_schema": True})
    assert "prompt_count" in problems({**inline, "prompt_count": 3})
    assert "input_tokens" in problems({"input_tokens": 3})
    assert "json_schema" in problems({"preset": "random-tokens", "json_schema": True})


def test_waves_need_a_closed_loop() -> None:
    assert "waves" in problems({"arrival_rate_s": 2, "waves": 2})


def test_json_is_expected_where_a_schema_is_asked_for() -> None:
    prompts = [{"prompt": "x", "json_schema": {"type": "object"}}, {"prompt": "y"}]
    assert [p.kind for p in from_spec({"prompts": prompts}).prompts] == ["json", "other"]


def test_a_seed_is_sent_where_answers_are_drawn() -> None:
    for api in ("chat", "completions", "completion"):
        drawn = from_spec({"api": api, "temperature": 0.5, "seed": 7})
        assert json.loads(level_requests(drawn, 1, engine="llamacpp", model="")[0].body)["seed"] == 7
