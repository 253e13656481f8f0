"""A `llama-server` made of the llama.cpp in the xllamacpp package, for machines where the packaged one crashes.

Understands the flags that the demo uses, spelt as llama-server spells them; serves until SIGTERM. It runs the same
engine code in process, so it is a real server and no imitation; it is only another front door.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from typing import Any

KV_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl")
SPEC_TYPES = ("none", "ngram-simple", "ngram-mod", "draft-simple")


def parser() -> argparse.ArgumentParser:
    """The flags of the demo's space and launch."""
    p = argparse.ArgumentParser(prog="llama-server", allow_abbrev=False)
    p.add_argument("--version", action="version", version="version: 0 (xllamacpp)")
    p.add_argument("-m", "--model", required=True)
    p.add_argument("-a", "--alias", default="")
    p.add_argument("--host", default="127.0.0.1")
    p.add_argument("--port", type=int, default=8080)
    p.add_argument("-c", "--ctx-size", type=int, default=4096)
    p.add_argument("-np", "--parallel", type=int, default=1)
    p.add_argument("-t", "--threads", type=int, default=2)
    p.add_argument("-tb", "--threads-batch", type=int, default=0)
    p.add_argument("-b", "--batch-size", type=int, default=2048)
    p.add_argument("-ub", "--ubatch-size", type=int, default=512)
    p.add_argument("-fa", "--flash-attn", choices=("on", "off", "auto"), default="auto")
    p.add_argument("-ctk", "--cache-type-k", choices=KV_TYPES, default="f16")
    p.add_argument("-ctv", "--cache-type-v", choices=KV_TYPES, default="f16")
    p.add_argument("-fit", "--fit", choices=("on", "off"), default="on")
    p.add_argument("--metrics", action="store_true")
    p.add_argument("--no-webui", action="store_true")
    p.add_argument("--spec-type", choices=SPEC_TYPES, default="none")
    p.add_argument("--spec-ngram-simple-size-n", type=int, default=12)
    p.add_argument("--spec-ngram-simple-size-m", type=int, default=48)
    p.add_argument("--spec-ngram-mod-n-match", type=int, default=24)
    p.add_argument("--spec-ngram-mod-n-min", type=int, default=48)
    p.add_argument("--spec-ngram-mod-n-max", type=int, default=64)
    p.add_argument("-md", "--model-draft", "--spec-draft-model", default="")
    p.add_argument("--spec-draft-n-max", type=int, default=3)
    return p


def params_from(args: argparse.Namespace, x: Any) -> Any:
    """Translate the flags into the library's parameters."""
    p = x.CommonParams()
    p.model.path = args.model
    p.model_alias = {args.alias} if args.alias else p.model_alias
    p.hostnames = [args.host]
    p.port, p.n_ctx, p.n_parallel = args.port, args.ctx_size, args.parallel
    p.n_batch, p.n_ubatch = args.batch_size, args.ubatch_size
    p.cpuparams.n_threads = args.threads
    p.cpuparams_batch.n_threads = args.threads_batch or args.threads
    flash = x.llama_flash_attn_type
    p.flash_attn_type = {
        "on": flash.LLAMA_FLASH_ATTN_TYPE_ENABLED,
        "off": flash.LLAMA_FLASH_ATTN_TYPE_DISABLED,
        "auto": flash.LLAMA_FLASH_ATTN_TYPE_AUTO,
    }[args.flash_attn]
    p.cache_type_k = getattr(x.ggml_type, "GGML_TYPE_" + args.cache_type_k.upper())
    p.cache_type_v = getattr(x.ggml_type, "GGML_TYPE_" + args.cache_type_v.upper())
    p.fit_params = args.fit == "on"
    p.endpoint_metrics = args.metrics
    return _with_speculation(p, args, x)


def _with_speculation(p: Any, args: argparse.Namespace, x: Any) -> Any:
    if args.spec_type == "none":
        return p
    name = "COMMON_SPECULATIVE_TYPE_" + args.spec_type.upper().replace("-", "_")
    p.speculative.types = [getattr(x.common_speculative_type, name)]
    if args.spec_type == "ngram-simple":
        p.speculative.ngram_simple.size_n = args.spec_ngram_simple_size_n
        p.speculative.ngram_simple.size_m = args.spec_ngram_simple_size_m
    elif args.spec_type == "ngram-mod":
        p.speculative.ngram_mod.n_match = args.spec_ngram_mod_n_match
        p.speculative.ngram_mod.n_min = args.spec_ngram_mod_n_min
        p.speculative.ngram_mod.n_max = args.spec_ngram_mod_n_max
    else:
        p.speculative.draft.mparams.path = args.model_draft
        p.speculative.draft.n_max = args.spec_draft_n_max
    return p


def main() -> None:
    """Serve until SIGTERM or SIGINT."""
    args = parser().parse_args()
    import xllamacpp  # type: ignore[import-not-found]

    done = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: done.set())
    if args.cache_type_v not in {"f32", "f16", "bf16"} and args.flash_attn == "off":
        sys.exit("V cache quantization requires flash_attn")
    server = xllamacpp.Server(params_from(args, xllamacpp))
    print(f"main: model loaded, listening on {server.listening_address}", file=sys.stderr, flush=True)
    done.wait()


if __name__ == "__main__":
    main()
