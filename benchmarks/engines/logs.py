"""Log lines of serving and of failing engines, made after their formats, for measuring how fast logs are read."""

from __future__ import annotations

_SGLANG = "".join(
    f"[2026-03-04 10:{i // 60 % 60:02}:{i % 60:02} TP0] {line}\n"
    for i in range(200)
    for line in (
        (
            f"Prefill batch, #new-seq: 1, #new-token: {512 + i}, #cached-token: 0, token usage: 0.01, "
            f"#running-req: {i % 9}, #queue-req: 0, cuda graph: False, input throughput (token/s): 1911.20"
        ),
        (
            f"Decode batch, #running-req: {i % 9}, #token: {900 + i}, token usage: 0.02, accept len: 2.41, "
            f"accept rate: 0.47, cuda graph: True, gen throughput (token/s): {140 + i % 30}.18, #queue-req: 0"
        ),
        'INFO:     10.0.0.7:51712 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
    )
)
_SGLANG_FAILS = """[2026-03-04 11:00:00 TP1] Scheduler hit an exception: Traceback (most recent call last):
  File "/env/sglang/srt/managers/scheduler.py", line 2612, in run_scheduler_process
    scheduler.event_loop_overlap()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.25 GiB. GPU 1 has a total capacity of 79.10 GiB of which
[2026-03-04 11:00:01] SIGQUIT received. signum=None, frame=None. It usually means one child failed.
"""
_VLLM = "".join(
    f"(APIServer pid=77) INFO 03-04 10:{i // 60 % 60:02}:{i % 60:02} {line}\n"
    for i in range(200)
    for line in (
        (
            f"[loggers.py:257] Engine 000: Avg prompt throughput: {i}.5 tokens/s, Avg generation throughput: "
            f"231.4 tokens/s, Running: {i % 9} reqs, Waiting: 0 reqs, GPU KV cache usage: 1.2%, "
            "Prefix cache hit rate: 0.0%"
        ),
        (
            "[metrics.py:120] SpecDecoding metrics: Mean acceptance length: 2.71, "
            "Accepted throughput: 120.10 tokens/s, Drafted throughput: 210.40 tokens/s, Accepted: 1201 tokens, "
            "Drafted: 2104 tokens, Per-position acceptance rate: 0.790, 0.610, 0.310, "
            "Avg Draft acceptance rate: 57.1%"
        ),
    )
)
_VLLM_FAILS = """(EngineCore pid=90) ERROR 03-04 11:00:00 [core.py:1100] EngineCore encountered a fatal error.
(EngineCore pid=90) ERROR 03-04 11:00:00 [core.py:1100] TimeoutError: RPC call to sample_tokens timed out.
(APIServer pid=77) ERROR 03-04 11:00:01 [async_llm.py:701] EngineDeadError: EngineCore encountered an issue.
"""
_LLAMACPP = "".join(
    f"slot print_timing: id  {i % 4} | task {i} | \n"
    f"prompt eval time =     {90 + i}.13 ms /    51 tokens (   17.94 ms per token,    55.73 tokens per second)\n"
    f"       eval time =   2303{i % 10}.87 ms /   275 tokens (   83.78 ms per token,    11.94 tokens per second)\n"
    f"draft acceptance = 0.54321 (  120 accepted /   221 generated), mean len =  2.45\n"
    f"srv  log_server_r: request: POST /completion 10.0.0.7 200\n"
    for i in range(200)
)
_LLAMACPP_FAILS = """CUDA error: an illegal memory access was encountered
  current device: 0, in function ggml_backend_cuda_synchronize at /src/ggml/src/ggml-cuda/ggml-cuda.cu:2780
"""
LOGS = {
    "sglang": (_SGLANG, _SGLANG_FAILS),
    "vllm": (_VLLM, _VLLM_FAILS),
    "llamacpp": (_LLAMACPP, _LLAMACPP_FAILS),
}
"""By engine: lines of a server that serves, and how it then fails."""
