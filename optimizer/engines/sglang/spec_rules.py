"""Speculative decoding in SGLang: what is forced, filled in and refused.

Decides on algorithm, steps, topk, draft tokens, overlap and mixed chunks, in SGLang's order, by version.
"""

from __future__ import annotations

from optimizer.engines.sglang.attention import BACKENDS, phase_backends
from optimizer.engines.sglang.request import Request

EAGLE_FAMILY = ("EAGLE", "EAGLE3", "STANDALONE")
KNOWN = {"STANDALONE": "0.5.2", "NGRAM": "0.5.3", "DFLASH": "0.5.12", "DSPARK": "0.5.18", "UNO": "0.5.20"}
SPEC_MAX_RUNNING = 48
"""Requests that run at once with speculation, unless given."""
STEPS, TOPK, TOKENS = "speculative-num-steps", "speculative-eagle-topk", "speculative-num-draft-tokens"
ADAPTIVE_STEPS = (0, 1, 3, 5, 7)
OLD_ADAPTIVE_STEPS = (0, 1, 3, 7)
"""Depths among which the adaptive mode chooses, without a file of its own (five since 0.5.20)."""
OWN_DRAFT = (
    "Deepseek",
    "Glm4Moe",
    "GlmMoeDsa",
    "BailingMoe",
    "MistralLarge3",
    "PixtralForConditional",
    "HYV3",
    "HYV4",
    "Qwen4Exp",
)
"""Architectures whose checkpoint carries its own draft layers."""
CHAIN_BY_DEFAULT = (*OWN_DRAFT[:6], "GptOss", "MiMoV2")


def tree_capacity(steps: int, topk: int) -> int:
    """Return the most draft tokens that a tree of this depth and width can hold, root included."""
    return 1 + topk + (steps - 1) * topk * topk


def speculation(request: Request) -> None:
    """Apply the rules of the chosen algorithm; without one, every speculative flag is idle."""
    state = request.state
    _draft_window(request)
    if not request.algorithm:
        if state.on("speculative-adaptive") and request.since("0.5.12"):
            state.force("speculative-adaptive", None, "no speculative-algorithm: nothing is drafted")
        for name in [n for n in state.values if n.startswith("speculative-")]:
            state.ignore(name, "no speculative-algorithm: nothing is drafted")
        return
    algorithm = request.algorithm
    state.force("speculative-algorithm", algorithm, "NEXTN is another name of EAGLE; names are read in capitals")
    since = KNOWN.get(algorithm)
    if since is not None and not request.since(since):
        state.reject(f"speculative-algorithm {algorithm} exists since {since}")
        return
    state.fill("max-running-requests", SPEC_MAX_RUNNING)
    _verification(request)
    adaptive = _adaptive(request)
    if algorithm in EAGLE_FAMILY:
        _eagle(request, adaptive)
    elif algorithm == "NGRAM":
        _ngram(request)
    elif algorithm in {"DFLASH", "DSPARK"}:
        _block(request)
    elif algorithm != "UNO":
        state.reject(f"speculative-algorithm {algorithm} is not known")
    _overlap_before_v2(request)


def _verification(request: Request) -> None:
    state = request.state
    if state.on("speculative-use-block-verification"):
        if request.algorithm not in {"EAGLE", "EAGLE3", "DFLASH", "DSPARK"}:
            state.reject("speculative-use-block-verification works with EAGLE, EAGLE3, DFLASH and DSPARK only")
        elif request.algorithm in {"EAGLE", "EAGLE3"}:
            state.fill("speculative-use-rejection-sampling", True)


def _draft_window(request: Request) -> None:
    state = request.state
    window, sink = "speculative-draft-window-size", "speculative-draft-sink-size"
    checked = request.since("0.5.14") or request.algorithm == "DFLASH"
    if window in state.flags and checked and (size := state.number(window)) is not None and size <= 0:
        state.reject(f"{window} must be above 0")
    if sink in state.flags and (size := state.number(sink)) is not None:
        if size < 0:
            state.reject(f"{sink} must not be negative")
        if state.number(window) is None:
            state.reject(f"{sink} needs {window}")


def _adaptive(request: Request) -> bool:
    """Say whether the server chooses the depth itself; refuses what it cannot start from."""
    state = request.state
    name = "speculative-adaptive"
    if not state.on(name):
        return False
    topk = state.number(TOPK)
    unfit = request.algorithm not in {"EAGLE", "EAGLE3"} or topk not in (None, 1)
    if not request.since("0.5.14"):
        topk_now = topk if topk is not None else _triple(request)[1] if state.number(STEPS) is None else None
        unfit = unfit or (topk_now or 1) != 1 or request.algorithm not in {"EAGLE", "EAGLE3"}
    if unfit or state.on("enable-dp-attention"):
        state.force(name, None, "the adaptive mode works on chains (topk 1) of EAGLE and EAGLE3 only")
        return False
    if not request.since("0.5.14"):
        return False
    state.fill(TOPK, 1)
    candidates = ADAPTIVE_STEPS if request.since("0.5.19") else OLD_ADAPTIVE_STEPS
    state.fill(STEPS, candidates[len(candidates) // 2])
    steps = state.number(STEPS)
    if "speculative-adaptive-config" not in state.values and steps not in candidates:
        state.reject(f"{STEPS} {steps}: the adaptive mode starts from one of {', '.join(map(str, candidates))}")
        return True
    if steps is not None:
        state.force(TOKENS, steps + 1, "the adaptive mode verifies steps + 1 tokens")
    return True


def _triple(request: Request) -> tuple[int, int, int]:
    """Steps, topk and draft tokens when none is given."""
    name = request.model.architecture
    if request.algorithm == "STANDALONE" and request.since("0.5.3"):
        return (3, 1, 4)
    if name.startswith(CHAIN_BY_DEFAULT):
        return (3, 1, 4)
    if name.startswith("Grok1") or name in {"", "LlamaForCausalLM"} or not request.since("0.5.8"):
        return (5, 4, 8)
    return (3, 1, 4)


def _eagle(request: Request, adaptive: bool) -> None:
    state = request.state
    if request.algorithm == "STANDALONE" and state.on("enable-dp-attention"):
        state.reject("STANDALONE does not work with attention data parallelism")
    mixes = request.since("0.5.18") and request.algorithm != "STANDALONE"
    if state.on("enable-mixed-chunk") and not mixes:
        state.force("enable-mixed-chunk", None, f"{request.algorithm} does not mix prompt pieces with decoding")
    if request.model.architecture.startswith(OWN_DRAFT) and "speculative-draft-model-path" not in state.values:
        path = state.text("model-path")
        if path is not None:
            state.fill("speculative-draft-model-path", path)
    steps, topk, tokens = state.number(STEPS), state.number(TOPK), state.number(TOKENS)
    if steps is None and not adaptive:
        if topk is not None or tokens is not None:
            state.reject(f"{TOPK} and {TOKENS} fail at start without {STEPS}: give all three")
            return
        for name, value in zip((STEPS, TOPK, TOKENS), _triple(request), strict=True):
            state.fill(name, value)
        steps, topk, tokens = state.number(STEPS), state.number(TOPK), state.number(TOKENS)
    if topk is None and request.since("0.5.1"):
        state.reject(f"{STEPS} without {TOPK} fails at start: give all three")
        return
    _tree(request, steps, topk, tokens)


def _tree(request: Request, steps: int | None, topk: int | None, tokens: int | None) -> None:
    state = request.state
    if topk is not None and topk > 1 and "trtllm_mha" in phase_backends(request) and request.since("0.5.3"):
        state.reject("trtllm_mha verifies chains only: give speculative-eagle-topk 1 or another attention-backend")
    if state.on("speculative-use-rejection-sampling"):
        _rejection_sampling(request, topk)
    if topk == 1 and steps is not None:
        state.force(TOKENS, steps + 1, "a chain (topk 1) verifies its drafted tokens and one bonus token: steps + 1")
        return
    if topk is None or topk < 1 or steps is None:
        return
    page = state.number("page-size") or 1
    kernels = _tree_kernels(request)
    if page > 1 and request.since("0.5.2") and state.text(BACKENDS[0]) not in {*kernels, None}:
        state.reject(
            f"page-size {page} with {TOPK} {topk} needs attention-backend {' or '.join(kernels)}, "
            f"not {state.text(BACKENDS[0])}"
        )
    if tokens is not None and tokens > tree_capacity(steps, topk):
        most = tree_capacity(steps, topk)
        state.reject(f"{TOKENS} {tokens}: a tree of {steps} steps and topk {topk} holds at most {most}; fails at start")


def _tree_kernels(request: Request) -> tuple[str, ...]:
    if request.since("0.5.13"):
        return ("flashinfer", "fa3", "triton")
    return ("flashinfer", "fa3") if request.since("0.5.8") else ("flashinfer",)


def _rejection_sampling(request: Request, topk: int | None) -> None:
    state = request.state
    name = "speculative-use-rejection-sampling"
    if request.algorithm not in {"EAGLE", "EAGLE3"}:
        state.reject(f"{name} works with EAGLE and EAGLE3 only")
    if topk != 1:
        state.reject(f"{name} works on chains only: give {TOPK} 1")
    thresholds = ("speculative-accept-threshold-single", "speculative-accept-threshold-acc")
    if any(state.get(t) not in (None, 1.0) for t in thresholds):
        state.reject(f"{name} ignores the accept thresholds and refuses them")


def _ngram(request: Request) -> None:
    state = request.state
    breadth = state.number("speculative-ngram-max-bfs-breadth") or 10
    state.force("enable-mixed-chunk", None, "NGRAM does not mix prompt pieces with decoding")
    state.force(TOPK, breadth, "NGRAM branches by speculative-ngram-max-bfs-breadth")
    window = state.number("speculative-ngram-max-match-window-size")
    state.fill(TOKENS, 12 if window is None else window)
    if request.since("0.5.8"):
        state.fill(STEPS, (state.number(TOKENS) or 12) // max(breadth, 1))
    page = state.number("page-size") or 1
    kernel = state.text(BACKENDS[0])
    if breadth > 1 and page > 1 and kernel not in {"flashinfer", None}:
        state.reject(f"page-size {page} with NGRAM needs attention-backend flashinfer, not {kernel}")
    if state.on("enable-dp-attention"):
        state.reject("NGRAM does not work with attention data parallelism")


def _block(request: Request) -> None:
    """DFLASH and DSPARK draft a block at once: one step, no branches."""
    state = request.state
    state.force(STEPS, 1, f"{request.algorithm} drafts one block")
    state.force(TOPK, 1, f"{request.algorithm} drafts one block")
    if request.algorithm == "DFLASH" and "speculative-draft-model-path" not in state.values:
        state.reject("DFLASH needs speculative-draft-model-path")
    size = state.number("speculative-dflash-block-size") if request.algorithm == "DFLASH" else None
    if size is not None:
        if state.number(TOKENS) not in (None, size):
            state.reject(f"{TOKENS} and speculative-dflash-block-size must be equal for DFLASH")
        state.fill(TOKENS, size)


def _overlap_before_v2(request: Request) -> None:
    """Until 0.5.13 speculation could take the overlap of scheduling and GPU away."""
    state = request.state
    if request.since("0.5.14"):
        return
    asked = request.state.env.get("SGLANG_ENABLE_SPEC_V2", "").lower()
    if request.algorithm == "NGRAM" or not request.since("0.5.5"):
        off = True
    elif request.since("0.5.12"):
        off = asked in {"0", "false"} or (state.number(TOPK) or 1) > 1
    else:
        off = asked not in {"1", "true"}
    if off:
        state.fill("disable-overlap-schedule", True)
