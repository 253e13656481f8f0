"""Short pieces of logs, cut as people quote them: engine, accepted labels (the first is the exact one), exit code."""

from __future__ import annotations

SNIPPETS: tuple[tuple[str, str, str, int | None], ...] = (
    (
        "llamacpp",
        "spec_inactive",
        (
            "srv    load_model: loading draft model '/m/d.gguf'\n"
            "srv  llama_server: model loaded\n"
            "slot print_timing: id  0 | task 3 |\n"
            "prompt eval time =     915.13 ms /    51 tokens\n"
            "       eval time =   23038.87 ms /   275 tokens (   83.78 ms per token,    11.94 toke"
            "ns per second)"
        ),
        None,
    ),
    (
        "llamacpp",
        "spec_inactive",
        (
            "srv    load_model: speculative decoding not supported by this context\n"
            "main: model loaded\n"
            "main: server is listening on http://127.0.0.1:8080 - starting the main loop"
        ),
        None,
    ),
    (
        "sglang",
        "low_acceptance",
        (
            "[2025-11-12 10:01:11 TP0] Decode batch, #running-req: 1, #token: 811, token usage: 0."
            "00, accept len: 1.04, accept rate: 0.26, cuda graph: True, gen throughput (token/s): "
            "41.55, #queue-req: 0"
        ),
        None,
    ),
    (
        "vllm",
        "kernel_arch_unsupported",
        (
            "ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8."
            "0. Your Tesla T4 GPU has compute capability 7.5. You can use float16 instead by expli"
            "citly setting the `dtype` flag"
        ),
        None,
    ),
    (
        "vllm",
        "kernel_arch_unsupported",
        (
            "ValueError: The quantization method fp8 is not supported for the current GPU. Minimum"
            " capability: 89. Current capability: 80."
        ),
        None,
    ),
    (
        "sglang",
        "kernel_arch_unsupported",
        "RuntimeError: FlashAttention only supports Ampere GPUs or newer.",
        None,
    ),
    (
        "vllm",
        "kernel_arch_unsupported",
        "ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'",
        None,
    ),
    (
        "sglang",
        "peer_rank_died|nccl_error",
        (
            "torch.distributed.DistBackendError: [1] is setting up NCCL communicator and retrievin"
            "g ncclUniqueId from [0] via c10d key-value store by store->get('0'), but store->get('"
            "0') got error: Connection reset by peer"
        ),
        None,
    ),
    (
        "vllm",
        "peer_rank_died|nccl_error",
        (
            "RuntimeError: NCCL error: remote process exited or there was a network error\n"
            "ncclRemoteError: A call failed possibly due to a network error or a remote process ex"
            "iting prematurely.\n"
            "Last error:\n"
            "socketProgressOpt: Call to recv from 10.1.1.2<41234> failed : Connection reset by pee"
            "r"
        ),
        None,
    ),
    (
        "sglang",
        "nccl_error|peer_rank_died|health_never_ready",
        ("torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined."),
        None,
    ),
    (
        "vllm",
        "peer_rank_died",
        (
            "ray.exceptions.RayActorError: The actor died unexpectedly before finishing this task."
            "\n"
            "\tclass_name: RayWorkerWrapper\n"
            " The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERRO"
            "R Worker exit detail: Worker unexpectedly exits with a connection error code 2. End o"
            "f file."
        ),
        None,
    ),
    (
        "vllm",
        "environment_broken",
        (
            "RuntimeError: Failed to infer device type, please set the environment variable `VLLM_"
            "LOGGING_LEVEL=DEBUG` to turn on verbose logging"
        ),
        None,
    ),
    (
        "vllm",
        "environment_broken|driver_cuda_mismatch",
        "ImportError: libcuda.so.1: cannot open shared object file: No such file or directory",
        None,
    ),
    (
        "sglang",
        "environment_broken",
        "RuntimeError: operator torchvision::nms does not exist",
        None,
    ),
    (
        "sglang",
        "kernel_not_compiled|environment_broken",
        (
            "ImportError: cannot import name 'top_k_renorm_prob' from 'flashinfer.sampling' (/opt/"
            "x/flashinfer/sampling.py)"
        ),
        None,
    ),
    (
        "sglang",
        "kernel_not_compiled|environment_broken",
        (
            "Exception: flashinfer_python is installed with version 0.2.2, which is less than the "
            "minimum required version 0.2.5. Please uninstall the old version and reinstall the la"
            "test version by following the instructions"
        ),
        None,
    ),
    (
        "sglang",
        "kernel_not_compiled|unsupported_combination|kernel_arch_unsupported",
        (
            "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 14745"
            "6, Hardware limit: 101376. Reducing block sizes or `num_stages` may help."
        ),
        None,
    ),
    (
        "vllm",
        "kernel_not_compiled|environment_broken",
        (
            "torch._inductor.exc.InductorError: RuntimeError: Failed to find C compiler. Please sp"
            "ecify via CC environment variable or set triton.knobs.build.impl."
        ),
        None,
    ),
    (
        "sglang",
        "kernel_not_compiled|environment_broken",
        (
            "/usr/bin/ld: cannot find -lcuda: No such file or directory\n"
            "collect2: error: ld returned 1 exit status\n"
            "ninja: build stopped: subcommand failed."
        ),
        None,
    ),
    (
        "sglang",
        "bind_failed",
        (
            "ERROR:    [Errno 99] error while attempting to bind on address ('10.2.3.4', 30000): c"
            "annot assign requested address"
        ),
        None,
    ),
    (
        "vllm",
        "bind_failed",
        "OSError: [Errno 97] Address family not supported by protocol",
        None,
    ),
    (
        "vllm",
        "bind_failed",
        ("PermissionError: [Errno 13] error while attempting to bind on address ('0.0.0.0', 80): permission denied"),
        None,
    ),
    (
        "sglang",
        "bind_failed|nccl_error",
        "socket.gaierror: [Errno -2] Name or service not known",
        None,
    ),
    (
        "sglang",
        "draft_mismatch",
        (
            '  File "/x/sglang/srt/speculative/eagle_worker.py", line 124, in __init__\n'
            "    super().__init__(\n"
            '  File "/x/sglang/srt/models/llama_eagle.py", line 60, in forward\n'
            "RuntimeError: mat1 and mat2 shapes cannot be multiplied (5x8192 and 12288x4096)"
        ),
        None,
    ),
    (
        "sglang",
        "draft_mismatch",
        (
            "RuntimeError: The size of tensor a (4096) must match the size of tensor b (7168) at n"
            "on-singleton dimension 1\n"
            "[TP0] speculative_algorithm='EAGLE3'"
        ),
        None,
    ),
    (
        "sglang",
        "draft_mismatch",
        (
            '  File "/x/sglang/srt/speculative/eagle_worker.py", line 33, in __init__\n'
            "KeyError: 'layers.0.self_attn.qkv_proj.weight'"
        ),
        None,
    ),
    (
        "vllm",
        "draft_mismatch",
        (
            "(Worker_TP0 pid=529) INFO 10-06 18:54:29 [gpu_model_runner.py:2641] Loading drafter m"
            "odel...\n"
            "(Worker_TP0 pid=529) ERROR 10-06 18:54:30 [multiproc_executor.py:597] KeyError: 'mode"
            "l.layers.0.mlp.experts.w2_bias'"
        ),
        None,
    ),
    (
        "llamacpp",
        "draft_mismatch",
        (
            "common_speculative_are_compatible: draft model vocab must match target model to use s"
            "peculation but target vocab size 151936 does not match draft vocab size 32000 - diffe"
            "rence 119936, max allowed 128\n"
            "srv    load_model: the draft model '/m/d.gguf' is not compatible with the target mode"
            "l '/m/t.gguf'"
        ),
        1,
    ),
    (
        "vllm",
        "oom_host_memory|killed_host_oom",
        ("RuntimeError: CUDA error: out of memory\ncudaHostAlloc failed for pinned memory of 80 GiB"),
        None,
    ),
    (
        "vllm",
        "oom_host_memory",
        (
            "ValueError: Too large swap space. 64.00 GiB out of the 62.50 GiB total CPU memory is "
            "allocated for the swap space."
        ),
        None,
    ),
    (
        "sglang",
        "oom_host_memory",
        (
            '  File "/x/sglang/srt/mem_cache/memory_pool_host.py", line 77\n'
            "ValueError: Not enough host memory available. Requesting 512.00 GB but only have 101."
            "22 GB free. Please reduce the size of the hierarchical cache."
        ),
        None,
    ),
    (
        "llamacpp",
        "oom_host_memory",
        (
            "ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 68719476"
            "736\n"
            "llama_model_load: error loading model: unable to allocate CPU buffer"
        ),
        1,
    ),
    (
        "vllm",
        "killed_host_oom",
        (
            "(EngineCore_DP0 pid=99) INFO Loading safetensors checkpoint shards:  60% Completed | "
            "3/5\n"
            "[Mon Feb  2 03:04:05 2026] oom-kill:constraint=CONSTRAINT_MEMCG,task=VLLM::EngineCor\n"
            "Memory cgroup out of memory: Killed process 4242 (VLLM::EngineCor)"
        ),
        None,
    ),
    (
        "sglang",
        "killed_host_oom",
        (
            "[2026-01-02 03:04:05] Subprocess scheduler_0 (pid=4242) crashed with exit code -9. Tr"
            "iggering SIGQUIT for cleanup..."
        ),
        None,
    ),
    (
        "sglang",
        "illegal_memory_access",
        (
            "../aten/src/ATen/native/cuda/IndexKernel.cu:94: operator(): block: [0,0,0], thread: ["
            '64,0,0] Assertion `-sizes[i] <= index && index < sizes[i] && "index out of bounds"` f'
            "ailed."
        ),
        None,
    ),
    (
        "sglang",
        "illegal_memory_access",
        ("Memory access fault by GPU node-2 (Agent handle: 0x55d) on address 0x7f0000. Reason: Unknown."),
        None,
    ),
    (
        "llamacpp",
        "illegal_memory_access",
        (
            "ggml_cuda_compute_forward: MUL_MAT failed\n"
            "CUDA error: an illegal memory access was encountered\n"
            "  current device: 0, in function ggml_cuda_compute_forward at ggml-cuda.cu:2366"
        ),
        134,
    ),
    (
        "llamacpp",
        "kernel_arch_unsupported",
        (
            "CUDA error: no kernel image is available for execution on the device\n"
            "  current device: 0, in function ggml_cuda_mul_mat_q"
        ),
        134,
    ),
    (
        "llamacpp",
        "driver_cuda_mismatch",
        (
            "ggml_cuda_init: failed to initialize CUDA: CUDA driver version is insufficient for CU"
            "DA runtime version\n"
            "warning: no usable GPU found, --gpu-layers option will be ignored"
        ),
        None,
    ),
    (
        "sglang",
        "watchdog_timeout",
        (
            "[2025-04-01 01:02:03 TP0] Watchdog timeout (self.watchdog_timeout=300)\n"
            "[2025-04-01 01:02:08] Received sigquit from a child process. It usually means the chi"
            "ld failed."
        ),
        137,
    ),
    (
        "sglang",
        "watchdog_timeout|health_never_ready",
        (
            "[2025-04-01 01:02:03] Health check failed. Server couldn't get a response from detoke"
            "nizer for last 20 seconds. tic start time: 01:01:43. last_heartbeat time: 00:59:02"
        ),
        None,
    ),
    (
        "vllm",
        "watchdog_timeout|nccl_error",
        (
            "(EngineCore_DP0 pid=1) WARNING 01-01 [shm_broadcast.py:466] No available shared memor"
            "y broadcast block found in 60 second(s).\n"
            "TimeoutError: RPC call to execute_model timed out."
        ),
        None,
    ),
    (
        "sglang",
        "nccl_error",
        (
            "RuntimeError: NCCL Error 5: invalid usage (run with NCCL_DEBUG=WARN for details)\n"
            "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1b000"
        ),
        None,
    ),
    (
        "vllm",
        "nccl_error",
        (
            "node1:1:99 [0] misc/ibvwrap.cc:228 NCCL WARN Call to ibv_modify_qp failed with error "
            "Connection timed out\n"
            "node1:1:99 [0] NCCL INFO transport/net_ib.cc:1290 -> 2"
        ),
        None,
    ),
    (
        "sglang",
        "port_in_use",
        "RuntimeError: Port 30000 is already in use by pid 4242",
        None,
    ),
    (
        "sglang",
        "port_in_use",
        "ValueError: nccl_port at 30233 is not available in 30 seconds.",
        None,
    ),
    (
        "sglang",
        "disk_or_shm_full",
        ("RuntimeError: unable to write to file </torch_4242_99_0>: No space left on device (28)"),
        None,
    ),
    (
        "vllm",
        "disk_or_shm_full",
        "OSError: [Errno 122] Disk quota exceeded: '/home/u/.cache/vllm/torch_compile_cache'",
        None,
    ),
    (
        "sglang",
        "environment_broken|disk_or_shm_full|kernel_not_compiled",
        "PermissionError: [Errno 13] Permission denied: '/root/.cache/flashinfer/0.2.5/90'",
        None,
    ),
    (
        "vllm",
        "invalid_flag",
        (
            "vllm serve: error: argument --speculative-config: Value {'method' cannot be converted"
            " to <function loads at 0x7f>."
        ),
        2,
    ),
    (
        "vllm",
        "invalid_flag|unsupported_combination",
        ("json.decoder.JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        1,
    ),
    (
        "sglang",
        "invalid_flag",
        (
            "launch_server.py: error: argument --attention-backend: invalid choice: 'fa9' (choose "
            "from 'triton', 'flashinfer')"
        ),
        2,
    ),
    (
        "vllm",
        "unsupported_combination",
        (
            "NotImplementedError: Speculative decoding with draft model is not supported yet. Plea"
            "se consider using other speculative decoding methods such as ngram, medusa, eagle, or"
            " deepseek_mtp."
        ),
        1,
    ),
    (
        "vllm",
        "unsupported_combination",
        ("ValueError: Total number of attention heads (40) must be divisible by tensor parallel size (16)."),
        1,
    ),
    (
        "sglang",
        "unsupported_combination",
        "AssertionError: The number of attention heads (28) must be divisible by tp size 8",
        None,
    ),
    (
        "sglang",
        "unsupported_combination",
        "ValueError: chunked_prefill_size must be divisible by page_size",
        1,
    ),
    (
        "sglang",
        "unsupported_combination",
        (
            "assert self.chunked_prefill_size % self.page_size == 0\n"
            "AssertionError: chunked_prefill_size must be divisible by page_size"
        ),
        1,
    ),
    (
        "vllm",
        "unsupported_combination",
        (
            "ValueError: User-specified max_model_len (131072) is greater than the derived max_mod"
            "el_len (max_position_embeddings=32768 or model_max_length=None in model's config.json"
            ")."
        ),
        1,
    ),
    (
        "vllm",
        "unsupported_model",
        ("ValueError: There is no module or parameter named 'lm_head.weight_packed' in LlamaForCausalLM"),
        1,
    ),
    (
        "vllm",
        "unsupported_model",
        (
            "RuntimeError: Cannot find model module. 'Qwen9ForCausalLM' is not a registered model "
            "in the Transformers library (only relevant if the model is meant to be in Transformer"
            "s) and 'AutoModel' is not present in the model config's 'auto_map'"
        ),
        1,
    ),
    (
        "llamacpp",
        "unsupported_model",
        "llama_model_load: error loading model: missing tensor 'blk.0.ffn_gate_exps.weight'",
        1,
    ),
    (
        "llamacpp",
        "model_not_found",
        ("common_download_file_single: HEAD failed, status: 404\nerror: failed to download model from Hugging Face"),
        1,
    ),
    (
        "sglang",
        "model_not_found",
        (
            "OSError: /data/models/x does not appear to have a file named config.json. Checkout 'h"
            "ttps://huggingface.co//data/models/x/tree/main' for available files."
        ),
        1,
    ),
    (
        "vllm",
        "model_not_found",
        (
            "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find an appropriate cached sna"
            "pshot folder for the specified revision on the local disk and outgoing traffic has be"
            "en disabled."
        ),
        1,
    ),
    (
        "sglang",
        "oom_runtime",
        (
            "[2025-06-01 TP0] Decode batch. #running-req: 64, #token: 99999, token usage: 0.98\n"
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. GPU 0 has a t"
            "otal capacity of 79.1 GiB of which 1.1 GiB is free."
        ),
        None,
    ),
    (
        "sglang",
        "oom_cuda_graph_capture",
        (
            "Capturing batches (avail_mem=0.52 GB):  10%|█         | 2/20 [00:01<00:09]\n"
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 64.00 MiB."
        ),
        None,
    ),
    (
        "vllm",
        "oom_cuda_graph_capture|oom_runtime",
        (
            '  File "/x/vllm/v1/worker/gpu_worker.py", line 337, in compile_or_warm_up_model\n'
            "    self.model_runner.capture_model()\n"
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB."
        ),
        None,
    ),
    (
        "vllm",
        "oom_kv_cache",
        (
            "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_util"
            "ization` when initializing the engine."
        ),
        1,
    ),
    (
        "sglang",
        "oom_kv_cache",
        (
            '  File "/x/sglang/srt/model_executor/model_runner.py", line 811, in init_memory_pool\n'
            "    raise RuntimeError(\n"
            "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."
        ),
        None,
    ),
    (
        "vllm",
        "oom_weights",
        (
            '  File "/x/vllm/model_executor/models/llama.py", line 88, in __init__\n'
            "    self.gate_up_proj = MergedColumnParallelLinear(\n"
            '  File "/x/vllm/model_executor/layers/linear.py", line 111, in create_weights\n'
            "torch.cuda.OutOfMemoryError: HIP out of memory. Tried to allocate 112.00 MiB."
        ),
        None,
    ),
    (
        "vllm",
        "gpu_busy_leftover|oom_weights",
        (
            "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; "
            "79.15 GiB total capacity; 1.10 GiB already allocated; 8.25 MiB free; 1.12 GiB reserve"
            "d in total by PyTorch)"
        ),
        None,
    ),
    (
        "vllm",
        "custom_allreduce_failed",
        (
            '  File "/x/vllm/distributed/device_communicators/custom_all_reduce.py", line 277, in '
            "_get_ipc_meta\n"
            "RuntimeError: CUDA error: invalid argument"
        ),
        None,
    ),
    (
        "sglang",
        "custom_allreduce_failed",
        "RuntimeError: CUDART error: peer access is not supported between these two devices",
        None,
    ),
    (
        "vllm",
        "scheduler_crash|unknown",
        (
            "(APIServer pid=9) RuntimeError: Engine core initialization failed. See root cause abo"
            "ve. Failed core proc(s): {'EngineCore_0': 1}"
        ),
        1,
    ),
    (
        "sglang",
        "scheduler_crash",
        (
            "[TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
            '  File "/x/sglang/srt/managers/scheduler.py", line 640, in event_loop_overlap\n'
            '  File "/x/sglang/srt/mem_cache/radix_cache.py", line 220, in dec_lock_ref\n'
            "AssertionError"
        ),
        137,
    ),
    (
        "sglang",
        "garbage_output",
        ('curl ... -> {"text": "!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!", "finish_reason": "length"}'),
        None,
    ),
    (
        "sglang",
        "environment_broken|driver_cuda_mismatch",
        ("RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized"),
        None,
    ),
    (
        "vllm",
        "none",
        (
            "INFO 01-01 10:00:00 [loggers.py:118] Engine 000: Avg prompt throughput: 10.0 tokens/s"
            ", Avg generation throughput: 99.0 tokens/s, Running: 3 reqs, Waiting: 0 reqs, GPU KV "
            "cache usage: 3.0%, Prefix cache hit rate: 0.0%\n"
            "WARNING 01-01 10:00:01 [fused_moe.py:683] Using default MoE config. Performance might"
            " be sub-optimal! Config file not found at /x/E=64,N=1280.json\n"
            'INFO:     10.0.0.1:0 - "POST /v1/completions HTTP/1.1" 200 OK'
        ),
        None,
    ),
    (
        "sglang",
        "none",
        (
            "[2025-05-05 10:00:00] server_args=ServerArgs(watchdog_timeout=300, dist_timeout=None,"
            " disable_custom_all_reduce=False)\n"
            "[2025-05-05 10:01:00 TP0] Memory pool end. avail mem=10.00 GB\n"
            "[2025-05-05 10:01:10 TP0] Capture cuda graph end. Time elapsed: 9.9 s\n"
            "[2025-05-05 10:01:20] The server is fired up and ready to roll!\n"
            "[2025-05-05 10:02:20] Error in request: Input length (140000 tokens) exceeds the maxi"
            "mum allowed length\n"
            "[2025-05-05 10:02:30 TP0] Decode batch. #running-req: 1, #token: 99, token usage: 0.0"
            "0, gen throughput (token/s): 55.00, #queue-req: 0"
        ),
        None,
    ),
    (
        "llamacpp",
        "none",
        (
            "0.00.003.775 W srv  llama_server: this can be a security risk (cross-origin attacks)\n"
            "0.00.414.098 I srv  llama_server: model loaded\n"
            "0.00.414.148 I srv  llama_server: listening on http://127.0.0.1:18999\n"
            '1.00.000.000 W srv  operator(): got exception: {"code":400,"message":"failed to parse'
            ' grammar"}\n'
            "1.01.000.000 I slot print_timing: id  0 | task 0 | prompt eval time = 10.0 ms / 5 tok"
            "ens"
        ),
        None,
    ),
    (
        "vllm",
        "none",
        (
            "(APIServer pid=1) INFO:     Application startup complete.\n"
            "(APIServer pid=1) INFO 01-01 10:00:00 [launcher.py:29] Available routes are:\n"
            "(APIServer pid=1) WARNING 01-01 10:00:01 [protocol.py:71] The following fields were p"
            "resent in the request but ignored: {'foo'}\n"
            "(APIServer pid=1) ERROR 01-01 10:00:02 [serving_chat.py:201] Error in preprocessing p"
            "rompt inputs\n"
            "(APIServer pid=1) Traceback (most recent call last):\n"
            "(APIServer pid=1) ValueError: This model's maximum context length is 4096 tokens. How"
            "ever, you requested 5000 tokens.\n"
            '(APIServer pid=1) INFO:     10.0.0.1:0 - "POST /v1/chat/completions HTTP/1.1" 400 Bad'
            " Request\n"
            '(APIServer pid=1) INFO:     10.0.0.1:0 - "POST /v1/chat/completions HTTP/1.1" 200 OK'
        ),
        None,
    ),
    (
        "sglang",
        "health_never_ready",
        (
            "[2025-03-13 10:00:00 TP0] Load weight end. type=X\n"
            "[2025-03-13 10:00:05] Loading JIT ops: batch_prefill_with_kv_cache\n"
            "[2025-03-13 10:00:00 TP0] Load weight end. type=X\n"
            "[2025-03-13 10:00:05] Loading JIT ops: batch_prefill_with_kv_cache\n"
            "[2025-03-13 10:00:00 TP0] Load weight end. type=X\n"
            "[2025-03-13 10:00:05] Loading JIT ops: batch_prefill_with_kv_cache\n"
        ),
        None,
    ),
    (
        "vllm",
        "health_never_ready",
        (
            "(APIServer pid=1) DEBUG 10-06 18:54:19 [utils.py:776] Waiting for 1 local, 0 remote c"
            "ore engine proc(s) to start.\n"
            "(APIServer pid=1) DEBUG 10-06 18:54:19 [utils.py:776] Waiting for 1 local, 0 remote c"
            "ore engine proc(s) to start.\n"
            "(APIServer pid=1) DEBUG 10-06 18:54:19 [utils.py:776] Waiting for 1 local, 0 remote c"
            "ore engine proc(s) to start.\n"
            "(APIServer pid=1) DEBUG 10-06 18:54:19 [utils.py:776] Waiting for 1 local, 0 remote c"
            "ore engine proc(s) to start.\n"
            "(APIServer pid=1) DEBUG 10-06 18:54:19 [utils.py:776] Waiting for 1 local, 0 remote c"
            "ore engine proc(s) to start.\n"
            "(APIServer pid=1) DEBUG 10-06 18:54:19 [utils.py:776] Waiting for 1 local, 0 remote c"
            "ore engine proc(s) to start.\n"
        ),
        None,
    ),
    (
        "vllm",
        "gpu_busy_leftover",
        "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
        None,
    ),
    (
        "vllm",
        "custom_allreduce_failed|nccl_error|unsupported_combination",
        (
            "RuntimeError: expandable_segments: cuMemImportFromShareableHandle failed: CUDA driver"
            " error: invalid device context"
        ),
        None,
    ),
    (
        "sglang",
        "unsupported_model",
        (
            '  File "/x/transformers/models/auto/configuration_auto.py", line 1000, in __getitem__'
            "\n"
            "    raise KeyError(key)\n"
            "KeyError: 'gpt_oss'"
        ),
        1,
    ),
    (
        "vllm",
        "unsupported_model",
        "AttributeError: 'Qwen9Config' object has no attribute 'rope_theta'",
        1,
    ),
    (
        "vllm",
        "unsupported_combination",
        "AttributeError: 'SpeculativeConfig' object has no attribute 'get'",
        1,
    ),
    (
        "llamacpp",
        "model_not_found|unsupported_model",
        (
            "llama_model_load: error loading model: tensor 'blk.3.attn_q.weight' data is not withi"
            "n the file bounds, model is corrupted or incomplete"
        ),
        1,
    ),
    (
        "llamacpp",
        "oom_runtime|oom_kv_cache",
        (
            "slot update_slots: id  0 | task 1 |\n"
            "srv  update_slots: failed to decode the batch: KV cache is full - try increasing it v"
            "ia the context size, i_batch = 0, n_batch = 1, ret = 1\n"
            "ggml_abort\n"
            "Aborted (core dumped)"
        ),
        134,
    ),
    (
        "llamacpp",
        "oom_runtime",
        (
            "main: server is listening on http://127.0.0.1:8080\n"
            "slot launch_slot_: id 0 | task 0 | processing task\n"
            "CUDA error: out of memory\n"
            "  current device: 0, in function alloc at ggml-cuda.cu:515"
        ),
        134,
    ),
    (
        "llamacpp",
        "oom_weights|oom_kv_cache",
        (
            "ggml_vulkan: Device memory allocation of size 4294967296 failed.\n"
            "ggml_vulkan: vk::Device::allocateMemory: ErrorOutOfDeviceMemory\n"
            "llama_model_load: error loading model: vk::Device::allocateMemory: ErrorOutOfDeviceMe"
            "mory"
        ),
        1,
    ),
    (
        "llamacpp",
        "invalid_flag",
        ("error while handling argument \"-fa\": unknown value for --flash-attn: 'yes'\n\nusage:"),
        1,
    ),
    (
        "llamacpp",
        "invalid_flag",
        "error: unknown argument: --draft",
        1,
    ),
    (
        "llamacpp",
        "unsupported_combination",
        (
            "llama_init_from_model: flash_attn is not compatible with attn_soft_cap - forcing off\n"
            "llama_init_from_model: V cache quantization requires flash_attn\n"
            "srv load_model: failed to load model"
        ),
        1,
    ),
    (
        "llamacpp",
        "spec_inactive|draft_mismatch",
        (
            "srv    load_model: the draft model '/m/d.gguf' is not compatible with the target mode"
            "l '/m/t.gguf'. tokens will be translated between the draft and target models.\n"
            "srv load_model: failed to initialize speculative decoding context: unsupported\n"
            "main: model loaded"
        ),
        None,
    ),
    (
        "sglang",
        "low_acceptance",
        (
            "[2026-01-01 00:00:00 TP0] Decode batch, #running-req: 4, #token: 100, token usage: 0."
            "01, accept len: 1.00, accept rate: 0.00, cuda graph: True, gen throughput (token/s): "
            "20.00, #queue-req: 0\n"
            "[2026-01-01 00:00:00 TP0] Decode batch, #running-req: 4, #token: 100, token usage: 0."
            "01, accept len: 1.00, accept rate: 0.00, cuda graph: True, gen throughput (token/s): "
            "20.00, #queue-req: 0\n"
            "[2026-01-01 00:00:00 TP0] Decode batch, #running-req: 4, #token: 100, token usage: 0."
            "01, accept len: 1.00, accept rate: 0.00, cuda graph: True, gen throughput (token/s): "
            "20.00, #queue-req: 0\n"
        ),
        None,
    ),
    (
        "vllm",
        "low_acceptance",
        (
            "INFO 01-02 [metrics.py:96] SpecDecoding metrics: Mean acceptance length: 1.02, Accept"
            "ed throughput: 0.50 tokens/s, Drafted throughput: 90.00 tokens/s, Accepted: 5 tokens,"
            " Drafted: 900 tokens, Per-position acceptance rate: 0.010, 0.004, 0.002, Avg Draft ac"
            "ceptance rate: 0.6%"
        ),
        None,
    ),
    (
        "sglang",
        "nccl_error",
        (
            "[rank4]:[E 2025-02-01 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0 Rank 4] Exception"
            " (either an error or timeout) detected by watchdog at work: 3, last enqueued NCCL wor"
            "k: 3, last completed NCCL work: 2.\n"
            "[rank4]:[E ProcessGroupNCCL.cpp:1834] [PG ID 0 PG GUID 0 Rank 4] Timeout at NCCL work"
            ": 3"
        ),
        None,
    ),
    (
        "sglang",
        "nccl_error",
        (
            "misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 192.0.2.3<43210> failed :"
            " No route to host\n"
            "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:317, unhandled syste"
            "m error"
        ),
        None,
    ),
    (
        "vllm",
        "nccl_error",
        (
            "[E socket.cpp:957] [c10d] The client socket has timed out after 600s while trying to "
            "connect to (10.0.0.1, 29500)."
        ),
        None,
    ),
    (
        "sglang",
        "illegal_memory_access|scheduler_crash",
        ("Error Code 700: TMA Desc Addr: 0x7ff\nFailed to initialize the tensor map: 700"),
        None,
    ),
    (
        "sglang",
        "watchdog_timeout",
        (
            "[2025-08-01 00:00:00 TP2] self.tree_cache.evictable_size()=12\n"
            "[2025-08-01 00:05:00 TP2] Pyspy dump for PID 4242:\n"
            'Thread 4242 (idle): "MainThread"\n'
            "    synchronize (torch/cuda/streams.py:224)\n"
            "    resolve_last_batch_result (sglang/srt/managers/tp_worker_overlap_thread.py:209)\n"
            "[2025-08-01 00:05:01 TP2] Watchdog timeout (self.watchdog_timeout=300)"
        ),
        None,
    ),
    (
        "sglang",
        "environment_broken",
        "python3: No module named sglang.launch_server",
        1,
    ),
    (
        "sglang",
        "environment_broken",
        (
            "/usr/bin/python3: Error while finding module specification for 'sglang.launch_server'"
            " (ModuleNotFoundError: No module named 'sglang')"
        ),
        1,
    ),
    (
        "vllm",
        "environment_broken|driver_cuda_mismatch",
        (
            "ImportError: /usr/lib/x86_64-linux-gnu/libstdc++.so.6: version `GLIBCXX_3.4.32' not f"
            "ound (required by /x/vllm/_C.abi3.so)"
        ),
        1,
    ),
    (
        "vllm",
        "environment_broken",
        "AttributeError: module 'numpy' has no attribute 'bool8'",
        1,
    ),
    (
        "vllm",
        "environment_broken|unsupported_combination",
        ("ImportError: cannot import name 'SiluAndMul' from partially initialized module 'vllm.model_executor'"),
        1,
    ),
    (
        "sglang",
        "driver_cuda_mismatch",
        ("RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain."),
        None,
    ),
    (
        "vllm",
        "driver_cuda_mismatch",
        (
            "docker: Error response from daemon: nvidia-container-cli: requirement error: unsatisf"
            "ied condition: cuda>=12.9, please update your driver to a newer version"
        ),
        125,
    ),
    (
        "vllm",
        "environment_broken",
        ('docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].'),
        125,
    ),
    (
        "sglang",
        "oom_cuda_graph_capture",
        (
            "Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 34.00 MiB"
            ". GPU 0 has a total capacity of 23.64 GiB of which 14.25 MiB is free."
        ),
        None,
    ),
    (
        "sglang",
        "cuda_graph_capture_failed|kernel_not_compiled|unsupported_combination|kernel_arch_unsupported",
        ("Exception: Capture cuda graph failed: Triton Error [CUDA]: device kernel image is invalid"),
        None,
    ),
    (
        "sglang",
        "oom_runtime",
        (
            "[2025-01-01 00:00:00 TP0] Decode batch. #running-req: 3\n"
            "[2025-01-01 00:00:01 TP0] KV cache pool is full. Retract requests. #retracted_reqs: 1"
            "\n"
            "[2025-01-01 00:00:02 TP0] Scheduler hit an exception: Traceback (most recent call las"
            "t):\n"
            '  File "/x/sglang/srt/speculative/eagle_worker.py", line 300, in verify\n'
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
        ),
        None,
    ),
    (
        "vllm",
        "oom_runtime|oom_weights|oom_kv_cache",
        (
            '  File "/x/vllm/v1/worker/gpu_worker.py", line 218, in determine_available_memory\n'
            "    self.model_runner.profile_run()\n"
            '  File "/x/vllm/v1/worker/gpu_model_runner.py", line 2200, in profile_run\n'
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.00 GiB."
        ),
        None,
    ),
    (
        "vllm",
        "disk_or_shm_full",
        "OSError: [Errno 28] No space left on device: '/tmp/torchinductor_root'",
        None,
    ),
    (
        "vllm",
        "killed_host_oom|scheduler_crash|peer_rank_died",
        (
            "(EngineCore_DP0 pid=1) ERROR 01-01 10:00:00 [multiproc_executor.py:149] Worker proc V"
            "llmWorker-1 died unexpectedly (exit code: -9), shutting down executor."
        ),
        None,
    ),
    (
        "vllm",
        "scheduler_crash|peer_rank_died",
        (
            "(EngineCore_DP0 pid=1) ERROR 01-01 10:00:00 [multiproc_executor.py:149] Worker proc V"
            "llmWorker-1 died unexpectedly, shutting down executor."
        ),
        None,
    ),
    (
        "vllm",
        "port_in_use",
        (
            "RuntimeError: torch.distributed.DistNetworkError: The server socket has failed to lis"
            "ten on any local network address. The server socket has failed to bind to [::]:29500 "
            "(errno: 98 - Address already in use)."
        ),
        None,
    ),
    (
        "vllm",
        "port_in_use",
        "zmq.error.ZMQError: Address already in use (addr='tcp://127.0.0.1:5557')",
        None,
    ),
    (
        "vllm",
        "unsupported_combination",
        (
            "ValueError: Selected backend AttentionBackendEnum.FLASHMLA is not valid for this conf"
            "iguration. Reason: ['head_size not supported']"
        ),
        1,
    ),
    (
        "sglang",
        "unsupported_combination",
        "AssertionError: Speculative decoding is not compatible with the torch compile",
        1,
    ),
    (
        "sglang",
        "unsupported_combination",
        (
            "ValueError: speculative_eagle_topk > 1 with page_size > 1 is unstable and produces in"
            "correct results for paged attention backends."
        ),
        1,
    ),
    (
        "sglang",
        "unsupported_model|model_not_found",
        (
            "ValueError: Unrecognized model in /m/x. Should have a `model_type` key in its config."
            "json, or contain one of the following strings in its name: albert"
        ),
        1,
    ),
    (
        "sglang",
        "environment_broken|kernel_not_compiled",
        (
            "ImportError: DeepEP is not installed. Please install DeepEP package from https://gith"
            "ub.com/deepseek-ai/deepep."
        ),
        1,
    ),
    (
        "sglang",
        "oom_runtime",
        (
            "Traceback (most recent call last):\n"
            '  File "/env/sglang/srt/managers/overlap.py", line 88, in forward_thread_func\n'
            "    with self.device_module.stream(self.stream):\n"
            "RuntimeError: CUDA error: out of memory\n"
        ),
        None,
    ),
    (
        "vllm",
        "oom_runtime",
        (
            "ERROR 03-02 08:00:00 engine.py:157] OutOfMemoryError('CUDA out of memory. Tried to alloc"
            "ate 96.00 MiB. GPU 0 has a total capacity of 79.1 GiB of which 3.0 MiB is free. Includin"
            "g non-PyTorch memory, this process has 79.0 GiB memory in use. Of the allocated memory 7"
            "0.1 GiB is allocated by PyTorch, with 41.0 MiB allocated in private pools (e.g., CUDA Gr"
            "aphs)')\n"
        ),
        None,
    ),
    (
        "sglang",
        "peer_rank_died",
        (
            "Exception: Capture cuda graph failed: [/src/gloo/gloo/transport/tcp/pair.cc:500] Connect"
            "ion closed by peer [10.0.0.4]:40001\n"
            "Possible solutions:\n"
            "1. set --mem-fraction-static to a smaller value\n"
        ),
        None,
    ),
    (
        "sglang",
        "nccl_error",
        (
            "Exception: Capture cuda graph failed: [/src/gloo/gloo/transport/tcp/unbound_buffer.cc:80"
            "] Timed out waiting 900000ms for send operation to complete\n"
        ),
        None,
    ),
    (
        "vllm",
        "disk_or_shm_full",
        (
            "(raylet) store_runner.cc:80: System memory request exceeds memory available in /dev/shm."
            " The request is for 9000000000 bytes, and the amount available is 8000000000 bytes.\n"
        ),
        None,
    ),
    (
        "sglang",
        "environment_broken",
        ("RuntimeError: No accelerator (CUDA, XPU, HPU, NPU) is available.\n"),
        1,
    ),
    (
        "vllm",
        "unsupported_model",
        (
            "(APIServer pid=7) pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n"
            "(APIServer pid=7)   Value error, No model architectures are specified [type=value_error,"
            " input_value=ArgsKwargs((), {}), input_type=ArgsKwargs]\n"
        ),
        1,
    ),
    (
        "sglang",
        "scheduler_crash",
        (
            "Exception in scheduler:\n"
            '  File "/env/sglang/srt/managers/worker.py", line 10, in forward_step\n'
            "    rows = indices.cpu()\n"
            "AttributeError: 'NoneType' object has no attribute 'cpu'\n"
        ),
        None,
    ),
    (
        "sglang",
        "none",
        (
            "[2026-03-02 08:00:00 TP1] Setup Custom allreduce failed with CUDART error: peer access i"
            "s not supported between these two devices. To silence this warning, specify --disable-cu"
            "stom-all-reduce explicitly.\n"
            "[2026-03-02 08:00:01 TP1] Load weight begin. avail mem=22.0 GB\n"
        ),
        None,
    ),
    (
        "llamacpp",
        "scheduler_crash",
        (
            "main: server is listening on http://127.0.0.1:8080 - starting the main loop\n"
            "GGML_ASSERT: /src/ggml/src/ggml.c:621: data\n"
            "Aborted (core dumped)\n"
        ),
        None,
    ),
    (
        "llamacpp",
        "scheduler_crash",
        (
            "slot launch_slot_: id  0 | task 4 | processing task\n"
            "llama-server: /src/kv-cache.cpp:90: Assertion `status == OK' failed.\n"
        ),
        None,
    ),
    (
        "llamacpp",
        "scheduler_crash",
        (
            "slot launch_slot_: id  0 | task 4 | processing task\n"
            "1.02.003.004 E ggml_vulkan: device lost on Vulkan0\n"
            "1.02.003.005 I slot      release: id  0 | task 4 | stop processing: n_tokens = 9, truncated = 0\n"
        ),
        None,
    ),
    (
        "vllm",
        "custom_allreduce_failed",
        (
            "2026-03-02T08:00:00Z  INFO launcher: VLLM: Failed: /src/csrc/custom_all_reduce.cuh:300 '"
            "invalid argument'\n"
            "2026-03-02T08:00:00Z  INFO launcher: VLLM: Failed: /src/csrc/custom_all_reduce.cuh:300 '"
            "invalid argument'\n"
        ),
        None,
    ),
    (
        "vllm",
        "model_not_found",
        ("(APIServer pid=3) ValueError: No tokenizer file found in directory: /models/m\n"),
        1,
    ),
    (
        "sglang",
        "environment_broken",
        (
            '  File "/env/lib/python3.12/site-packages/transformers/__init__.py", line 700, in <module>\n'
            "    sys.modules[__name__] = _Lazy(\n"
            "ValueError: Backend should be one of the mapping. Offending backend: vision\n"
        ),
        1,
    ),
    (
        "vllm",
        "unsupported_combination",
        (
            "RuntimeError: Worker failed with error 'Cannot find graph shapes that are multiples of 3"
            " and 4, please adjust num_speculative_tokens or disable sequence parallelism'\n"
        ),
        1,
    ),
    (
        "sglang",
        "kernel_not_compiled",
        (
            '  File "/env/deep_gemm/jit/runtime.py", line 50, in __call__\n'
            "    assert len(names) == 1, names\n"
            "AssertionError: Too many kernels in the library: ['a', 'b']\n"
        ),
        1,
    ),
    (
        "sglang",
        "nccl_error",
        (
            "The server is fired up and ready to roll!\n"
            "Assertion failed: /src/DeepEP/csrc/kernels/internode.cu:483, condition: num_rc_per_pe >= num_channels\n"
        ),
        None,
    ),
)
