"""One SGLang request with what its rules depend on: version, GPU, model.

Decides how those are read; what follows from them is in the rule modules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from optimizer.engines.base import Hardware
from optimizer.engines.hardware import capability, memory_mib
from optimizer.engines.resolution import Resolution
from optimizer.engines.versions import version_key


@dataclass(frozen=True)
class ModelFacts:
    """What a `config.json` tells. Without one, a dense decoder with ordinary attention is assumed."""

    known: bool = False
    architecture: str = ""
    latent_attention: bool = False
    quantisation: str = ""
    multimodal: bool = False
    sinks: bool = False

    @classmethod
    def read(cls, config: Mapping[str, Any] | None) -> ModelFacts:
        """Read the facts; None gives the assumption."""
        if config is None:
            return cls()
        architectures = config.get("architectures") or [""]
        text = config.get("text_config")
        inner: Mapping[str, Any] = text if isinstance(text, Mapping) else config
        quantised = inner.get("quantization_config") or config.get("quantization_config")
        method = quantised.get("quant_method") if isinstance(quantised, Mapping) else ""
        name = str(architectures[0])
        return cls(
            known=True,
            architecture=name,
            latent_attention=bool(inner.get("kv_lora_rank")),
            quantisation=str(method or ""),
            multimodal="vision_config" in config,
            sinks=name == "GptOssForCausalLM",
        )


@dataclass
class Request:
    """A request being resolved. `memory_mib` and `compute` are None when the GPU is not known."""

    state: Resolution
    version: tuple[int, ...]
    memory_mib: int | None
    compute: tuple[int, int] | None
    model: ModelFacts
    hardware: Hardware

    @classmethod
    def read(cls, state: Resolution, hardware: Hardware, model: Mapping[str, Any] | None) -> Request:
        """Join a request with its surroundings."""
        return cls(
            state=state,
            version=version_key(state.asked_version or state.flags.version),
            memory_mib=memory_mib(hardware),
            compute=capability(hardware),
            model=ModelFacts.read(model),
            hardware=hardware,
        )

    def since(self, version: str) -> bool:
        """Say whether this version is that one or newer."""
        return self.version >= version_key(version)

    @property
    def hopper(self) -> bool:
        """Compute capability 9."""
        return self.compute is not None and self.compute[0] == 9

    @property
    def data_centre_blackwell(self) -> bool:
        """Compute capability 10."""
        return self.compute is not None and self.compute[0] == 10

    @property
    def any_blackwell(self) -> bool:
        """Compute capability 10 or 12."""
        return self.compute is not None and self.compute[0] in (10, 12)

    @property
    def algorithm(self) -> str:
        """The speculative algorithm in capitals, NEXTN read as EAGLE; empty without speculation."""
        name = (self.state.text("speculative-algorithm") or "").upper()
        return "EAGLE" if name == "NEXTN" else name

    @property
    def split_graphs(self) -> bool:
        """Whether decode and prefill graphs have flags of their own (0.5.14 and later)."""
        return "cuda-graph-max-bs-decode" in self.state.flags
