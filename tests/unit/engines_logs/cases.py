"""Logs of our own, made after the formats of the engines: engine, exit code, text, label that must come out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    name: str
    engine: str
    label: str
    text: str
    exit_code: int | None = None


SGLANG_BOOT = """\
[2026-03-02 08:00:01] server_args=ServerArgs(model_path='/models/m-70b', tp_size=4, mem_fraction_static=0.88, \
watchdog_timeout=300, disable_cuda_graph=False, speculative_algorithm=None)
[2026-03-02 08:00:09 TP0] Init torch distributed begin.
[2026-03-02 08:00:12 TP0] Init torch distributed ends. elapsed=3.10 s, mem usage=1.02 GB
[2026-03-02 08:00:12 TP0] Load weight begin. avail mem=78.10 GB
"""
SGLANG_WEIGHTS = (
    SGLANG_BOOT
    + """\
[2026-03-02 08:01:12 TP0] Load weight end. elapsed=60.01 s, type=Llama, avail mem=43.02 GB, mem usage=35.0 GB.
"""
)
SGLANG_KV = (
    SGLANG_WEIGHTS
    + """\
[2026-03-02 08:01:14 TP0] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 401022, K size: 15 GB, V size: 15 GB
[2026-03-02 08:01:14 TP0] Memory pool end. avail mem=10.44 GB
[2026-03-02 08:01:15 TP0] Capture cuda graph begin. This can take up to several minutes. avail mem=10.01 GB
"""
)
SGLANG_READY = (
    SGLANG_KV
    + """\
[2026-03-02 08:01:40 TP0] Capture cuda graph end. Time elapsed: 25.11 s. mem usage=2.31 GB. avail mem=7.70 GB.
[2026-03-02 08:01:41 TP0] max_total_num_tokens=401022, chunked_prefill_size=8192, max_prefill_tokens=16384, \
max_running_requests=2048, context_len=8192, available_gpu_mem=7.70 GB
[2026-03-02 08:01:42] INFO:     Started server process [4242]
[2026-03-02 08:01:42] INFO:     Application startup complete.
[2026-03-02 08:01:42] INFO:     Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)
[2026-03-02 08:01:45] INFO:     127.0.0.1:50010 - "POST /generate HTTP/1.1" 200 OK
[2026-03-02 08:01:45] The server is fired up and ready to roll!
[2026-03-02 08:02:01 TP0] Decode batch, #running-req: 4, #token: 2048, token usage: 0.01, cuda graph: True, \
gen throughput (token/s): 310.12, #queue-req: 0
"""
)
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 79.10 GiB "
    "of which 512.00 MiB is free. Including non-PyTorch memory, this process has 78.58 GiB memory in use."
)
SIGQUIT = "[2026-03-02 08:05:00] Received sigquit from a child process. It usually means the child failed.\nKilled\n"

VLLM_BOOT = """\
(APIServer pid=11) INFO 03-02 08:00:01 [utils.py:233] non-default args: {'model': '/m', 'max_model_len': 8192}
(EngineCore_DP0 pid=77) INFO 03-02 08:00:20 [core.py:77] Initializing a V1 LLM engine (v0.11.0) with config: model='/m'
(EngineCore_DP0 pid=77) INFO 03-02 08:00:21 [gpu_model_runner.py:2602] Starting to load model /models/m-8b...
"""
VLLM_LOADED = (
    VLLM_BOOT
    + """\
(EngineCore_DP0 pid=77) INFO 03-02 08:00:40 [gpu_model_runner.py:2653] Model loading took 14.98 GiB and 18.2 seconds
(EngineCore_DP0 pid=77) INFO 03-02 08:00:55 [gpu_worker.py:298] Available KV cache memory: 55.10 GiB
(EngineCore_DP0 pid=77) INFO 03-02 08:00:55 [kv_cache_utils.py:1087] GPU KV cache size: 451,376 tokens
"""
)
VLLM_READY = (
    VLLM_LOADED
    + """\
(EngineCore_DP0 pid=77) INFO 03-02 08:01:12 [runner.py:3480] Graph capturing finished in 14 secs, took 0.61 GiB
(APIServer pid=11) INFO 03-02 08:01:15 [api_server.py:1839] Starting vLLM API server 0 on http://0.0.0.0:8000
(APIServer pid=11) INFO:     Application startup complete.
(APIServer pid=11) INFO 03-02 08:01:30 [loggers.py:127] Engine 000: Avg prompt throughput: 210.3 tokens/s, Avg \
generation throughput: 340.0 tokens/s, Running: 4 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.2%, \
Prefix cache hit rate: 0.0%
"""
)
VLLM_WRAPPER = (
    "(APIServer pid=11) RuntimeError: Engine core initialization failed. See root cause above. "
    "Failed core proc(s): {'EngineCore_DP0': 1}\n"
)

LLAMA_BOOT = """\
build: 6710 (74b8fc17f) with cc (Debian 12.2.0) for x86_64-linux-gnu
ggml_cuda_init: found 1 CUDA devices:
  Device 0: NVIDIA L4, compute capability 8.9, VMM: yes
main: loading model
srv    load_model: loading model '/models/m.gguf'
llama_model_load_from_file_impl: using device CUDA0 (NVIDIA L4) - 22500 MiB free
"""
LLAMA_READY = (
    LLAMA_BOOT
    + """\
load_tensors: offloaded 33/33 layers to GPU
llama_context: n_ctx         = 8192
llama_kv_cache: size = 1024.00 MiB
main: model loaded
main: server is listening on http://127.0.0.1:8080 - starting the main loop
srv  update_slots: all slots are idle
slot launch_slot_: id  0 | task 0 | processing task
slot print_timing: id  0 | task 0 |
prompt eval time =     100.00 ms /    20 tokens (    5.00 ms per token,   200.00 tokens per second)
       eval time =    1000.00 ms /   100 tokens (   10.00 ms per token,   100.00 tokens per second)
"""
)


def _sg_crash(frames: str, last: str, boot: str = SGLANG_BOOT) -> str:
    head = "[2026-03-02 08:04:59 TP1] Scheduler hit an exception: Traceback (most recent call last):\n"
    return boot + head + frames + last + "\n\n" + SIGQUIT


def _frame(path: str, function: str, code: str = "x = f(y)") -> str:
    return f'  File "/opt/env/lib/python3.12/site-packages/{path}", line 101, in {function}\n    {code}\n'


def _vllm_crash(frames: str, last: str, boot: str = VLLM_BOOT) -> str:
    prefix = "(EngineCore_DP0 pid=77) ERROR 03-02 08:01:00 [core.py:708] "
    body = "EngineCore failed to start.\nTraceback (most recent call last):\n" + frames + last
    return boot + "".join(f"{prefix}{line}\n" for line in body.splitlines()) + VLLM_WRAPPER


CASES = (
    # arguments
    Case(
        "sglang unknown flag",
        "sglang",
        "invalid_flag",
        "usage: sglang serve [-h] --model-path MODEL_PATH [--disable-custom-all-reduce]\n"
        "                    [--watchdog-timeout WATCHDOG_TIMEOUT]\n"
        "sglang serve: error: unrecognized arguments: --speculative-ngram-branch-length 12\n",
        2,
    ),
    Case(
        "sglang ambiguous",
        "sglang",
        "invalid_flag",
        "sglang serve: error: ambiguous option: --cuda-graph-bs could match --cuda-graph-bs-decode, "
        "--cuda-graph-bs-prefill",
        2,
    ),
    Case(
        "vllm bad choice",
        "vllm",
        "invalid_flag",
        "vllm serve: error: argument --kv-cache-dtype: invalid choice: 'fp7' (choose from auto, fp8)",
        2,
    ),
    Case("vllm missing value", "vllm", "invalid_flag", "vllm serve: error: argument --port: expected one argument", 2),
    Case(
        "llama removed",
        "llamacpp",
        "invalid_flag",
        'error while handling argument "--draft-min": the argument has been removed. use --spec-draft-n-min\n\nusage\n',
        1,
    ),
    Case("llama unknown", "llamacpp", "invalid_flag", "error: invalid argument: --mlocks\n", 1),
    Case(
        "vllm pydantic value",
        "vllm",
        "invalid_flag",
        "(APIServer pid=5) pydantic_core._pydantic_core.ValidationError: 1 validation error for SpeculativeConfig\n"
        "(APIServer pid=5) method\n"
        "(APIServer pid=5)   Input should be 'ngram', 'eagle' [type=literal_error, input_value='foo', "
        "input_type=str]\n",
        1,
    ),
    Case(
        "vllm pydantic rule",
        "vllm",
        "unsupported_combination",
        "(APIServer pid=5) pydantic_core._pydantic_core.ValidationError: 1 validation error for SchedulerConfig\n"
        "(APIServer pid=5)   Value error, max_num_batched_tokens (64) must be greater than or equal to "
        "max_num_seqs (256)."
        " [type=value_error, input_value=ArgsKwargs((), {}), input_type=ArgsKwargs]\n",
        1,
    ),
    # combinations
    Case(
        "sglang heads",
        "sglang",
        "unsupported_combination",
        _sg_crash(
            _frame("sglang/srt/models/llama.py", "__init__", "assert self.total_num_heads % tp_size == 0"),
            "AssertionError",
        ),
    ),
    Case(
        "sglang standalone dp",
        "sglang",
        "unsupported_combination",
        "Traceback (most recent call last):\n"
        + _frame("sglang/srt/server_args.py", "__post_init__")
        + "ValueError: Currently standalone speculative decoding does not support dp attention.\n",
        1,
    ),
    Case(
        "sglang topk",
        "sglang",
        "unsupported_combination",
        _sg_crash(
            _frame("sglang/srt/model_executor/cuda_graph_runner.py", "capture"),
            "Exception: Capture cuda graph failed: selected index k out of range\nPossible solutions:\n"
            "1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)",
            SGLANG_KV,
        ),
    ),
    Case(
        "vllm async ngram",
        "vllm",
        "unsupported_combination",
        "(APIServer pid=5)   Value error, Currently, async scheduling is only supported with EAGLE/MTP/Draft "
        "Model kind of "
        "speculative decoding [type=value_error]\n(APIServer pid=5) ValueError: Currently, async scheduling is only "
        "supported with EAGLE\n",
        1,
    ),
    Case(
        "vllm block size",
        "vllm",
        "unsupported_combination",
        _vllm_crash(_frame("vllm/v1/worker/utils.py", "select"), "ValueError: No common block size for 7 "),
    ),
    Case(
        "llama quantised v",
        "llamacpp",
        "unsupported_combination",
        LLAMA_BOOT + "0.00.095.597 E llama_init_from_model: V cache quantization requires flash_attn\n"
        "0.00.095.684 E cmn  common_init_: failed to create context with model '/models/m.gguf'\n",
        1,
    ),
    Case(
        "sglang none type",
        "sglang",
        "invalid_flag",
        "Traceback (most recent call last):\n"
        + _frame("sglang/srt/arg_groups/speculative_hook.py", "handle", "if args.speculative_eagle_topk > 1:")
        + "TypeError: '>' not supported between instances of 'NoneType' and 'int'\n",
        1,
    ),
    # models
    Case(
        "vllm no such repo",
        "vllm",
        "model_not_found",
        "(APIServer pid=5) OSError: acme/m-8x is not a local folder and is not a valid model identifier listed on "
        "'https://huggingface.co/models'\n",
        1,
    ),
    Case(
        "vllm hf validation",
        "vllm",
        "model_not_found",
        "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': "
        "'/models/nope'. Use `repo_type` argument if needed.\n",
        1,
    ),
    Case(
        "hub down",
        "sglang",
        "model_not_found",
        "OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in "
        "the cache.\n",
        1,
    ),
    Case(
        "safetensors cut",
        "sglang",
        "model_not_found",
        _sg_crash(
            _frame("sglang/srt/model_loader/weight_utils.py", "safetensors_weights_iterator"),
            "safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata, file not "
            "fully covered",
        ),
    ),
    Case(
        "llama no file",
        "llamacpp",
        "model_not_found",
        "main: loading model\ngguf_init_from_file: failed to open GGUF file '/models/nope.gguf' (No such file "
        "or directory)\n"
        "llama_model_load: error loading model: llama_model_loader: failed to load model from /models/nope.gguf\n"
        "srv    load_model: failed to load model, '/models/nope.gguf'\nmain: exiting due to model loading error\n",
        1,
    ),
    Case(
        "llama unknown arch",
        "llamacpp",
        "unsupported_model",
        LLAMA_BOOT
        + "llama_model_load: error loading model: error loading model architecture: unknown model architecture: "
        "'newmoe'\nllama_model_load_from_file_impl: failed to load model\nmain: exiting due to model loading error\n",
        1,
    ),
    Case(
        "vllm arch",
        "vllm",
        "unsupported_model",
        "(APIServer pid=5)   Value error, Model architectures ['NewMoeForCausalLM'] are not supported for now. "
        "Supported architectures: dict_keys(['LlamaForCausalLM']) [type=value_error]\n",
        1,
    ),
    Case(
        "remote code",
        "sglang",
        "unsupported_model",
        "ValueError: The repository /models/kimi contains custom code which must be executed to correctly load "
        "the model. "
        "Please pass the argument `trust_remote_code=True` to allow custom code to be run.\n",
        1,
    ),
    # drafts
    Case(
        "standalone vocab",
        "sglang",
        "draft_mismatch",
        _sg_crash(
            _frame("sglang/srt/speculative/standalone_worker_v2.py", "__init__"),
            "ValueError: STANDALONE needs a draft with the same vocabulary as the target model (151936 against 32000)",
            SGLANG_WEIGHTS,
        ),
    ),
    Case(
        "vllm vocab",
        "vllm",
        "draft_mismatch",
        "(APIServer pid=5) ValueError: Target and draft model should have the same vocabulary size. Target: "
        "128256, draft: 32000\n",
        1,
    ),
    Case(
        "eagle3 target",
        "sglang",
        "draft_mismatch",
        _sg_crash(
            _frame("sglang/srt/model_executor/model_runner.py", "initialize"),
            "AttributeError: 'PhiForCausalLM' object has no attribute 'set_eagle3_layers_to_capture'",
            SGLANG_WEIGHTS,
        ),
    ),
    Case(
        "eagle weights",
        "sglang",
        "draft_mismatch",
        _sg_crash(
            _frame("sglang/srt/speculative/eagle_worker.py", "__init__")
            + _frame("sglang/srt/models/llama_eagle3.py", "load_weights"),
            "KeyError: 'midlayer.self_attn.qkv_proj.weight'",
            SGLANG_WEIGHTS,
        ),
    ),
    Case(
        "eagle shape",
        "vllm",
        "draft_mismatch",
        _vllm_crash(
            _frame("vllm/v1/spec_decode/eagle.py", "load_model") + _frame("vllm/model_executor/layers/linear.py", "wl"),
            "AssertionError: Tried to load weights of size torch.Size([4096]) shape mismatch for param "
            "torch.Size([8192])",
        ),
    ),
    # GPU memory
    Case(
        "weights",
        "sglang",
        "oom_weights",
        _sg_crash(_frame("sglang/srt/model_loader/loader.py", "load_model"), OOM),
    ),
    Case("weights by stage", "sglang", "oom_weights", SGLANG_BOOT + f"[2026-03-02 08:00:40 TP0] {OOM}\n" + SIGQUIT),
    Case(
        "kv text",
        "sglang",
        "oom_kv_cache",
        _sg_crash(
            _frame("sglang/srt/model_executor/model_runner.py", "init_memory_pool"),
            "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: 0.60",
            SGLANG_WEIGHTS,
        ),
    ),
    Case(
        "kv by frames",
        "sglang",
        "oom_kv_cache",
        _sg_crash(_frame("sglang/srt/mem_cache/memory_pool.py", "_create_buffers"), OOM, SGLANG_WEIGHTS),
    ),
    Case(
        "graph",
        "sglang",
        "oom_cuda_graph_capture",
        _sg_crash(
            _frame("sglang/srt/model_executor/cuda_graph_runner.py", "capture_one_batch_size"),
            "Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 96.00 MiB.\nPossible "
            "solutions:\n"
            "1. set --mem-fraction-static to a smaller value",
            SGLANG_KV,
        ),
    ),
    Case("graph by stage", "sglang", "oom_cuda_graph_capture", SGLANG_KV + OOM + "\n" + SIGQUIT),
    Case(
        "runtime",
        "sglang",
        "oom_runtime",
        _sg_crash(_frame("sglang/srt/managers/scheduler.py", "event_loop_overlap"), OOM, SGLANG_READY),
    ),
    Case(
        "runtime pool",
        "sglang",
        "oom_runtime",
        _sg_crash("", "RuntimeError: Prefill out of memory. Try to lower your batch size.", SGLANG_READY),
    ),
    Case(
        "vllm weights",
        "vllm",
        "oom_weights",
        _vllm_crash(_frame("vllm/model_executor/layers/linear.py", "create_weights"), OOM),
    ),
    Case(
        "vllm no blocks",
        "vllm",
        "oom_kv_cache",
        _vllm_crash(
            "", "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`."
        ),
    ),
    Case(
        "vllm capture",
        "vllm",
        "oom_cuda_graph_capture",
        _vllm_crash(_frame("vllm/v1/worker/gpu_model_runner.py", "capture_model"), OOM, VLLM_LOADED),
    ),
    Case(
        "vllm runtime",
        "vllm",
        "oom_runtime",
        VLLM_READY
        + "(EngineCore_DP0 pid=77) ERROR 03-02 08:05:00 [core.py:710] EngineCore encountered a fatal error.\n"
        + _frame("vllm/v1/worker/gpu_model_runner.py", "execute_model")
        + OOM
        + "\n(APIServer pid=11) vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.\n",
    ),
    Case(
        "foreign memory",
        "vllm",
        "gpu_busy_leftover",
        VLLM_BOOT
        + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
        "79.10 GiB of which 1.10 GiB is free. Process 901 has 70.00 GiB memory in use. Including non-PyTorch "
        "memory, this "
        "process has 8.00 GiB memory in use.\n" + VLLM_WRAPPER,
    ),
    Case(
        "unbalanced",
        "sglang",
        "gpu_busy_leftover",
        _sg_crash("", "ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes."),
    ),
    Case(
        "llama weights",
        "llamacpp",
        "oom_weights",
        LLAMA_BOOT
        + "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 30000.00 MiB on device 0: cudaMalloc failed: out "
        "of memory\nllama_model_load: error loading model: unable to allocate CUDA0 buffer\nmain: exiting due "
        "to model "
        "loading error\n",
        1,
    ),
    Case(
        "llama kv",
        "llamacpp",
        "oom_kv_cache",
        LLAMA_BOOT
        + "llama_context: n_ctx = 262144\nggml_backend_cuda_buffer_type_alloc_buffer: allocating 32768.00 MiB on "
        "device 0: cudaMalloc failed: out of memory\nalloc_tensor_range: failed to allocate CUDA0 buffer of "
        "size 34359738368\n"
        "llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache\n",
        1,
    ),
    # host memory
    Case(
        "host oom rank",
        "sglang",
        "killed_host_oom",
        SGLANG_BOOT
        + "[2026-03-02 08:00:59] Rank 2 scheduler died during initialization (exit code: -9). If exit code is -9 "
        "(SIGKILL), a common cause is the OS OOM killer.\n",
        1,
    ),
    Case(
        "host oom shell",
        "vllm",
        "killed_host_oom",
        VLLM_BOOT + "/start.sh: line 12:  4021 Killed   vllm serve /m\n",
        137,
    ),
    Case(
        "host oom k8s",
        "vllm",
        "killed_host_oom",
        VLLM_BOOT + "Last State: Terminated\n  Reason:       OOMKilled\n  Exit Code:    137\n",
        137,
    ),
    Case(
        "hicache too big",
        "sglang",
        "oom_host_memory",
        _sg_crash(
            _frame("sglang/srt/mem_cache/memory_pool_host.py", "__init__"),
            "ValueError: Not enough host memory available. Requesting 900.00 GB but only have 200.00 GB free.",
            SGLANG_WEIGHTS,
        ),
    ),
    Case(
        "cpu allocator",
        "vllm",
        "oom_host_memory",
        _vllm_crash("", "RuntimeError: [enforce fail at alloc_cpu.cpp:119] DefaultCPUAllocator: can't allocate memory"),
    ),
    # self-inflicted kills are not the kernel's
    Case(
        "self kill",
        "sglang",
        "unsupported_model",
        _sg_crash("", "ValueError: Model architectures ['FooModel'] are not supported for now."),
        137,
    ),
    # graphs and kernels
    Case(
        "capture fault",
        "sglang",
        "cuda_graph_capture_failed",
        _sg_crash(
            _frame("sglang/srt/model_executor/cuda_graph_runner.py", "capture"),
            "Exception: Capture cuda graph failed: CUDA error: operation not permitted when stream is capturing",
            SGLANG_KV,
        ),
    ),
    Case(
        "illegal access",
        "vllm",
        "illegal_memory_access",
        VLLM_READY
        + "[rank0]:[E302 08:04:01.1 ProcessGroupNCCL.cpp:1896] [PG ID 2 Rank 0] Process group watchdog thread "
        "terminated with "
        "exception: CUDA error: an illegal memory access was encountered\n"
        "(EngineCore_DP0 pid=77) ERROR 03-02 08:04:02 [core.py:710] EngineCore encountered a fatal error.\n"
        "terminate called after throwing an instance of 'c10::DistBackendError'\n",
    ),
    Case(
        "device assert",
        "sglang",
        "illegal_memory_access",
        _sg_crash("", "RuntimeError: CUDA error: device-side assert triggered", SGLANG_READY),
    ),
    Case(
        "no kernel image",
        "vllm",
        "kernel_arch_unsupported",
        _vllm_crash("", "RuntimeError: CUDA error: no kernel image is available for execution on the device"),
    ),
    Case(
        "fa3 arch",
        "sglang",
        "kernel_arch_unsupported",
        _sg_crash(
            _frame("sglang/srt/layers/attention/flashattention_backend.py", "__init__"),
            "AssertionError: FlashAttention v3 Backend requires SM>=80 and SM<=90. Please use "
            "`--attention-backend flashinfer`.",
        ),
    ),
    Case(
        "fp8 triton",
        "vllm",
        "kernel_arch_unsupported",
        _vllm_crash(
            "", "ValueError: type fp8e4nv not supported in this architecture. The supported fp8 dtypes are ('fp8e5',)"
        ),
    ),
    Case(
        "kernel op missing",
        "vllm",
        "kernel_not_compiled",
        _vllm_crash("", "AttributeError: '_OpNamespace' '_C' object has no attribute 'rms_norm'"),
    ),
    Case(
        "nvcc missing",
        "sglang",
        "kernel_not_compiled",
        _sg_crash(
            "",
            "RuntimeError: Could not find nvcc and default cuda_home='/usr/local/cuda' doesn't exist",
            SGLANG_WEIGHTS,
        ),
    ),
    Case(
        "ninja",
        "sglang",
        "kernel_not_compiled",
        _sg_crash(
            "", "RuntimeError: Error building extension 'batch_prefill_jit': ninja: build stopped: subcommand failed."
        ),
    ),
    Case(
        "abi",
        "vllm",
        "driver_cuda_mismatch",
        "ImportError: /opt/env/vllm/_C.abi3.so: undefined symbol: "
        "_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_ib\n",
        1,
    ),
    Case(
        "old driver",
        "sglang",
        "driver_cuda_mismatch",
        _sg_crash("", "RuntimeError: The NVIDIA driver on your system is too old (found version 12020)."),
    ),
    Case(
        "ptx",
        "sglang",
        "driver_cuda_mismatch",
        _sg_crash(
            "",
            "torch.AcceleratorError: CUDA error: the provided PTX was compiled with an unsupported toolchain.",
            SGLANG_KV,
        ),
    ),
    Case(
        "cudart",
        "vllm",
        "driver_cuda_mismatch",
        "ImportError: libcudart.so.13: cannot open shared object file: No such file or directory\n",
        1,
    ),
    Case("no gpu", "sglang", "environment_broken", "RuntimeError: No CUDA GPUs are available\n", 1),
    Case(
        "numpy",
        "vllm",
        "environment_broken",
        "ValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected 96 from C header, "
        "got 88\n",
        1,
    ),
    Case("no module", "sglang", "environment_broken", "ModuleNotFoundError: No module named 'orjson'\n", 1),
    Case(
        "no command",
        "sglang",
        "environment_broken",
        "nohup: failed to run command 'sglang': No such file or directory\n",
        127,
    ),
    Case("no python", "vllm", "environment_broken", "bash: line 1: /opt/x/bin/vllm: No such file or directory\n", 127),
    # between ranks
    Case(
        "nccl system",
        "vllm",
        "nccl_error",
        _vllm_crash(
            _frame("vllm/distributed/device_communicators/pynccl.py", "__init__"),
            "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3356, unhandled system error",
        ),
    ),
    Case(
        "nccl watchdog",
        "sglang",
        "nccl_error",
        SGLANG_READY
        + "[rank3]:[E302 08:09:00.1 ProcessGroupNCCL.cpp:683] [Rank 3] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=991, OpType=ALLREDUCE, NumelIn=8192, Timeout(ms)=600000) ran for 600021 milliseconds\n"
        "[rank0]:[E302 08:09:03.1 ProcessGroupNCCL.cpp:683] [Rank 0] ncclRemoteError: remote process exited\n"
        + SIGQUIT,
    ),
    Case(
        "nccl setting",
        "sglang",
        "nccl_error",
        SGLANG_BOOT + 'gpu-1:77:77 [0] NCCL WARN Unrecognized element token "LL64" when parsing "LL64"\n'
        "RuntimeError: NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details)\n" + SIGQUIT,
    ),
    Case(
        "nccl shm",
        "vllm",
        "disk_or_shm_full",
        VLLM_BOOT + "gpu-1:12:99 [1] include/shmutils.h:72 NCCL WARN Error: failed to extend /dev/shm/nccl-Ab12 to "
        "9637892 bytes, "
        "error: No space left on device (28)\nRuntimeError: NCCL error: unhandled system error\n" + VLLM_WRAPPER,
    ),
    Case(
        "peer",
        "sglang",
        "peer_rank_died",
        SGLANG_READY
        + "[rank1]:[W302 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=79): Connection reset by peer\n"
        "torch.distributed.DistBackendError: NCCL communicator was aborted on rank 1.\n" + SIGQUIT,
    ),
    Case(
        "car",
        "sglang",
        "custom_allreduce_failed",
        SGLANG_KV
        + "Failed: Cuda error /sgl-kernel/csrc/allreduce/custom_all_reduce.cuh:368 'invalid argument'\n"
        + SIGQUIT,
    ),
    Case(
        "car ipc",
        "vllm",
        "custom_allreduce_failed",
        _vllm_crash(
            _frame("vllm/distributed/device_communicators/custom_all_reduce.py", "create_shared_buffer"),
            "RuntimeError: CUDART error: invalid device context",
        ),
    ),
    # ports and disks
    Case(
        "vllm port",
        "vllm",
        "port_in_use",
        "(APIServer pid=5) OSError: [Errno 98] Address already in use\n",
        1,
    ),
    Case(
        "sglang port",
        "sglang",
        "port_in_use",
        SGLANG_KV
        + "[2026-03-02 08:01:42] ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', "
        "30000): "
        "address already in use\n",
        1,
    ),
    Case(
        "rendezvous port",
        "sglang",
        "port_in_use",
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network "
        "address. port: 29500, "
        "useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use\n",
    ),
    Case(
        "llama port",
        "llamacpp",
        "port_in_use",
        "0.00.010.160 E srv         start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 8080\n"
        "0.00.010.357 E srv  llama_server: exiting due to HTTP server error\n",
        1,
    ),
    Case(
        "foreign address",
        "sglang",
        "bind_failed",
        "ERROR:    [Errno 99] error while attempting to bind on address ('192.0.2.7', 30000): cannot assign "
        "requested address\n",
        1,
    ),
    Case(
        "disk",
        "sglang",
        "disk_or_shm_full",
        SGLANG_BOOT + "OSError: [Errno 28] No space left on device: '/root/.cache/x'\n",
        1,
    ),
    Case(
        "rust disk",
        "vllm",
        "disk_or_shm_full",
        "RuntimeError: Data processing error: CAS service error : IO Error: No space left on device (os error 28)\n",
        1,
    ),
    # hangs and crashes
    Case(
        "watchdog",
        "sglang",
        "watchdog_timeout",
        SGLANG_READY
        + "[2026-03-02 08:20:00 TP0] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)\n"
        + SIGQUIT,
        137,
    ),
    Case(
        "execute timeout",
        "vllm",
        "watchdog_timeout",
        VLLM_READY + "(EngineCore_DP0 pid=77) TimeoutError: RPC call to execute_model timed out.\n"
        "(APIServer pid=11) EngineDeadError: EngineCore encountered an issue.\n",
    ),
    Case(
        "warmup",
        "sglang",
        "health_never_ready",
        SGLANG_KV + "[2026-03-02 08:01:42] INFO:     Application startup complete.\n"
        "[2026-03-02 08:11:42] Initialization failed. warmup error: Traceback (most recent call last):\n"
        + _frame("requests/adapters.py", "send")
        + "requests.exceptions.ReadTimeout: HTTPConnectionPool(host='127.0.0.1', port=30000): Read timed out. "
        "(read timeout=600)\n",
        137,
    ),
    Case(
        "index error",
        "sglang",
        "scheduler_crash",
        _sg_crash(
            _frame("sglang/srt/managers/scheduler.py", "event_loop_normal"),
            "IndexError: list index out of range",
            SGLANG_READY,
        ),
        137,
    ),
    Case(
        "leak",
        "sglang",
        "scheduler_crash",
        _sg_crash("", "ValueError: token_to_kv_pool_allocator memory leak detected!", SGLANG_READY),
    ),
    Case("vllm wrapper only", "vllm", "scheduler_crash", VLLM_WRAPPER),
    Case(
        "segfault",
        "vllm",
        "scheduler_crash",
        VLLM_LOADED + "!!!!!!! Segfault encountered !!!!!!!\nSegmentation fault (core dumped)\n",
        139,
    ),
    Case(
        "llama assert",
        "llamacpp",
        "scheduler_crash",
        LLAMA_READY
        + "/src/ggml/src/ggml-cuda/fattn.cu:88: GGML_ASSERT(max_bias == 0.0f) failed\nAborted (core dumped)\n",
        134,
    ),
    Case("silent exit", "sglang", "unknown", SGLANG_BOOT, 1),
    Case(
        "never accepted",
        "vllm",
        "low_acceptance",
        VLLM_READY + "INFO 03-02 08:02:00 [metrics.py:96] SpecDecoding metrics: Mean "
        "acceptance length: 1.00, Accepted throughput: 0.00 tokens/s, Drafted throughput: 90.00 tokens/s, "
        "Accepted: 0 tokens, "
        "Drafted: 900 tokens, Per-position acceptance rate: 0.000, 0.000, Avg Draft acceptance rate: 0.0%\n",
    ),
    # healthy
    Case("healthy sglang", "sglang", "none", SGLANG_READY),
    Case("healthy vllm", "vllm", "none", VLLM_READY),
    Case("healthy llama", "llamacpp", "none", LLAMA_READY),
    Case(
        "noisy start",
        "sglang",
        "none",
        "[2026-03-02 07:59:58] Ignore import error when loading sglang.srt.models.mllama: No module named 'timm'\n"
        "[W302 07:59:59.1 socket.cpp:752] [c10d] The client socket cannot be initialized to connect to "
        "[gpu-1]:29500 (errno: 97 "
        "- Address family not supported by protocol).\n"
        "/opt/env/torch/cuda/__init__.py:61: FutureWarning: The pynvml package is deprecated.\n"
        "[2026-03-02 08:00:12 TP0] Custom allreduce is disabled because your platform lacks GPU P2P capability "
        "or P2P test "
        "failed. To silence this warning, specify disable_custom_all_reduce=True explicitly.\n"
        'loc("/opt/x.py":1:1): error: operation scheduled before its operands\n' + SGLANG_READY,
    ),
    Case(
        "bad request",
        "vllm",
        "none",
        VLLM_READY + "(APIServer pid=11) ERROR:    Exception in ASGI application\n(APIServer pid=11) Traceback (most "
        "recent call "
        "last):\n(APIServer pid=11) ValueError: This model's maximum context length is 8192 tokens.\n"
        '(APIServer pid=11) INFO:     127.0.0.1:5 - "POST /v1/completions HTTP/1.1" 400 Bad Request\n'
        "(APIServer pid=11) INFO 03-02 08:03:00 [loggers.py:127] Engine 000: Avg prompt throughput: 0.0 "
        "tokens/s, Avg generation "
        "throughput: 99.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.2%, Prefix cache "
        "hit rate: 0.0%\n",
    ),
    Case(
        "orderly stop",
        "vllm",
        "none",
        VLLM_READY
        + "(APIServer pid=11) INFO 03-02 08:03:00 [launcher.py:100] [shutdown] API server: shutdown triggered\n"
        "(EngineCore_DP0 pid=77) ERROR 03-02 08:03:01 [multiproc_executor.py:230] Worker proc VllmWorker-0 died "
        "unexpectedly, "
        "shutting down executor.\nresource_tracker: There appear to be 1 leaked shared_memory objects to clean "
        "up at shutdown\n",
        0,
    ),
    Case(
        "fit probes",
        "llamacpp",
        "none",
        LLAMA_BOOT
        + "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9000.00 MiB on device 0: cudaMalloc failed: out of "
        "memory\nllama_params_fit: failed to fit params to free device memory: n_gpu_layers already set by "
        "user, abort\n" + LLAMA_READY,
    ),
    Case("empty", "sglang", "none", ""),
)
