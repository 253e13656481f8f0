"""The double keeps its own promises: the formula's shape, and SGLang's rewriting of flags."""

from __future__ import annotations

import pytest

from tests.replica import flags
from tests.replica.speed import speed

PLAIN = {"tp_size": 8}


def eagle(steps: int, topk: int, drafts: int, **more: object) -> dict[str, object]:
    return {**PLAIN, "speculative_algorithm": "EAGLE3", "speculative_num_steps": steps,
            "speculative_eagle_topk": topk, "speculative_num_draft_tokens": drafts, **more}  # fmt: skip


def test_short_drafts_win_long_ones_and_missing_graphs_lose() -> None:
    plain = speed(PLAIN, {}).tok_s
    assert plain == pytest.approx(90, abs=1)
    assert speed(eagle(2, 1, 3), {}).tok_s > 1.1 * plain
    assert speed(eagle(8, 8, 32), {}).tok_s < plain
    assert all(
        speed(eagle(s, k, min(d, flags.capacity(s, k)), disable_cuda_graph=True), {}).tok_s < plain
        for s in range(1, 9) for k in (1, 2, 4, 8) for d in (2, 4, 8, 16)
    )  # fmt: skip


def test_load_and_environment_count() -> None:
    assert speed(PLAIN, {}, running=8).tok_s < speed(PLAIN, {}).tok_s
    assert speed(PLAIN, {"NCCL_PROTO": "LL128"}).tok_s > speed(PLAIN, {}).tok_s


def resolved(*argv: str) -> tuple[dict[str, object], list[str]]:
    return flags.resolve(flags.parse(["--model-path", "m", *argv]))


def test_flags_are_rewritten_as_the_original_does() -> None:
    args, warnings = resolved("--speculative-algorithm", "nextn", "--speculative-num-steps", "4",
                              "--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "16")  # fmt: skip
    assert args["speculative_algorithm"] == "EAGLE"
    assert args["speculative_num_draft_tokens"] == 5 and args["max_running_requests"] == 48
    assert len(warnings) == 2
    auto, _ = resolved("--speculative-algorithm", "EAGLE3")
    assert [auto[f"speculative_{n}"] for n in ("num_steps", "eagle_topk", "num_draft_tokens")] == [3, 1, 4]


@pytest.mark.parametrize(
    ("argv", "error"),
    [
        (["--speculative-algorithm", "MAGIC"], ValueError),
        (["--speculative-algorithm", "EAGLE", "--speculative-eagle-topk", "2"], AssertionError),
        (["--speculative-algorithm", "EAGLE", "--speculative-num-steps", "2"], TypeError),
        (["--chunked-prefill-size", "100", "--page-size", "64"], AssertionError),
    ],
)
def test_refused_combinations_are_refused(argv: list[str], error: type[Exception]) -> None:
    with pytest.raises(error):
        resolved(*argv)


@pytest.mark.parametrize("argv", [["--no-such-flag", "1"], ["--tp-size", "x"], ["--speculative-num", "3"]])
def test_bad_flags_end_with_status_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        resolved(*argv)
    assert caught.value.code == 2
    assert "error:" in capsys.readouterr().err
