"""What in a log only this engine prints: pairs of weight (1 to 5) and pattern, capitals ignored."""

from __future__ import annotations

SIGNS = (
    (5, r"\bvllm\b|VLLM::|\bvllm_\w+"),
    (4, r"gpu[-_]memory[-_]utilization|\bEngineCore(?:_\w+)?\b|AsyncLLMEngine|MQLLMEngine|llm_engine\.py"),
    (4, r"Avg prompt throughput|SpecDecoding metrics|Speculative metrics"),
    (3, r"\(APIServer pid=|\(Worker(?:_\w+)? pid=|VllmWorker|SpeculativeConfig|GPU KV cache |max_model_len"),
    (2, r"max seq len|(?:INFO|ERROR|WARNING) \d\d-\d\d \d\d:\d\d:\d\d "),
)
