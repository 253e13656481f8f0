"""More short pieces of logs, one or two for a cause: engine, accepted labels, text, exit code."""

from __future__ import annotations

BY_CAUSE: tuple[tuple[str, str, str, int | None], ...] = (
    # The dynamic linker speaks before any engine does.
    ("llamacpp", "environment_broken", "llama-server: error while loading shared libraries: libggml-base.so: x\n", 127),
    (
        "llamacpp",
        "environment_broken",
        (
            "/opt/llama-server: error while loading shared libraries: libcuda.so.1: cannot open shared object file: "
            "No such file or directory\n"
        ),
        127,
    ),
    ("llamacpp", "environment_broken", "/lib/libm.so.6: version `GLIBC_2.39' not found (required by llama)\n", 1),
    (
        "llamacpp",
        "driver_cuda_mismatch",
        "llama-server: error while loading shared libraries: libcublas.so.13: cannot open shared object file\n",
        127,
    ),
    # Host memory is not the card's.
    ("llamacpp", "oom_host_memory", "llama_model_load: error loading model: mmap failed: Cannot allocate memory\n", 1),
    # llama.cpp's own refusals.
    ("llamacpp", "environment_broken", "E prepare: invalid value for main_gpu: 1 (available devices: 0)\n", 1),
    ("llamacpp", "invalid_flag", "E prepare: invalid value for main_gpu: 3 (available devices: 2)\n", 1),
    ("llamacpp", "invalid_flag", 'error: tools setup failed: unknown tool "shel"\n', 1),
    # The graphics driver resets the card.
    (
        "llamacpp",
        "scheduler_crash",
        (
            "srv llama_server: server is listening on http://127.0.0.1:1\n"
            "kernel: amdgpu 0000:03:00.0: ring comp_1.0.0 timeout, signaled seq=7, emitted seq=9\n"
        ),
        None,
    ),
    # Ranks lose each other.
    (
        "sglang",
        "nccl_error",
        (
            "[rank3]:[W101 01:01:01.1 socket.cpp:485] [c10d] waitForInput: socket SocketImpl(fd=9, addr=[a]:1, "
            "remote=[b]:2) timed out after 600000ms\n"
            "[2026-01-01 01:01:01 TP3] Scheduler hit an exception: Traceback (most recent call last):\n"
        ),
        None,
    ),
    (
        "vllm",
        "peer_rank_died",
        "[rank1]:[W101 01:01:01.1 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=9): Connection reset\n",
        None,
    ),
    ("vllm", "nccl_error", "CCL_ERROR| ze_fd_manager.cpp:150 init_fds: opendir failed\n", 1),
    ("sglang", "nccl_error", "RuntimeError: [enforce fail at gloo/transport/tcp/device.cc:9] ifa. No: eth7\n", 1),
    ("sglang", "nccl_error", "team_split: connect failed\nNVSHMEM API called before NVSHMEM initialization\n", None),
    # Memory: what was done when it ran out, and who holds it.
    (
        "vllm",
        "oom_runtime",
        (
            "ERROR 01-01 01:01:01 [w.py:2] Exception in worker W while processing method start_worker_execution_loop.\n"
            "ERROR 01-01 01:01:01 [w.py:2] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 90.00 MiB.\n"
        ),
        None,
    ),
    (
        "sglang",
        "gpu_busy_leftover",
        (
            "[2026-01-01 01:01:01 TP0] Load weight begin. avail mem=1.50 GB\n"
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 300.00 MiB. GPU 0 has a total capacity of "
            "44.40 GiB of which 90.00 MiB is free. Process 7 has 41.90 GiB memory in use. Process 90 has 2.40 "
            "GiB memory "
            "in use. Of the allocated memory 1.90 GiB is allocated by PyTorch, and 20.00 MiB is reserved.\n"
        ),
        None,
    ),
    ("vllm", "oom_kv_cache", "ValueError: max_num_seqs (512) exceeds available Mamba cache blocks (77).\n", 1),
    # A hint about signal 9 is no signal 9.
    (
        "sglang",
        "scheduler_crash",
        (
            "RuntimeError: Rank 2 scheduler died during initialization (exit code: -3). If exit code is -9 "
            "(SIGKILL), a "
            "common cause is the OS OOM killer.\n"
        ),
        None,
    ),
    (
        "sglang",
        "killed_host_oom",
        (
            "RuntimeError: Rank 2 scheduler died during initialization (exit code: -9). If exit code is -9 "
            "(SIGKILL), a "
            "common cause is the OS OOM killer.\n"
        ),
        None,
    ),
    # A defect met while serving is no missing flag.
    (
        "sglang",
        "scheduler_crash",
        (
            '  File "/x/sglang/srt/speculative/eagle_info.py", line 9, in prepare_for_verify\n'
            "TypeError: 'NoneType' object cannot be interpreted as an integer\n"
            "[2026-01-01 01:01:01] SIGQUIT received. signum=None, frame=None.\n"
        ),
        None,
    ),
    ("sglang", "invalid_flag", "TypeError: '<' not supported between instances of 'int' and 'NoneType'\n", 1),
    # Heads that do not fit.
    (
        "sglang",
        "draft_mismatch",
        (
            '  File "/x/sglang/srt/models/llama_eagle3.py", line 9, in load_weights\n'
            "AssertionError: param.size()=torch.Size([1000, 64]) loaded_weight.size()=torch.Size([9000, 64])\n"
        ),
        None,
    ),
    # Layers refuse without a word.
    (
        "sglang",
        "unsupported_combination",
        (
            '  File "/x/sglang/srt/layers/linear.py", line 9, in __init__\n'
            "    assert self.quant_method is not None\n"
            "AssertionError\n"
        ),
        None,
    ),
    # Checkpoints in another format, with and without the loader's frames.
    ("vllm", "unsupported_model", "KeyError: 'layers.7.mlp.experts.w13_scale'\n", 1),
    (
        "vllm",
        "unsupported_model",
        (
            '  File "/x/vllm/model_loader/weight_utils.py", line 9, in default_weight_loader\n'
            "    assert param.shape == loaded_weight.shape\n"
            "AssertionError\n"
        ),
        1,
    ),
    (
        "vllm",
        "draft_mismatch",
        (
            '  File "/x/vllm/model_executor/models/llama_eagle3.py", line 9, in load_weights\n'
            "KeyError: 'layers.7.mlp.down_proj.weight'\n"
        ),
        1,
    ),
    ("llamacpp", "unsupported_combination", "error loading model: device CUDA1 does not support split buffers\n", 1),
    ("llamacpp", "model_not_found", "error: failed to get manifest at https://x/y: 401 Unauthorized\n", 1),
    ("vllm", "environment_broken", "KeyError: 'getpwuid(): uid not found: 4242'\n", 1),
    # Compilers, packages, accounts.
    ("vllm", "kernel_not_compiled", '3 errors detected in the compilation of "/root/.cache/k/prefill.cu".\n', None),
    ("vllm", "environment_broken", "ImportError: \nFooTokenizer requires the Bar library\n", 1),
    ("vllm", "environment_broken", "ValueError: Couldn't instantiate the backend tokenizer from one of: \n", 1),
    ("vllm", "environment_broken", "FileNotFoundError: [Errno 2] No such file or directory: '/root/<stdin>'\n", 1),
    (
        "vllm",
        "bind_failed",
        (
            '  File "/x/vllm/api_server.py", line 9, in create_server_socket\n'
            "    sock.bind(addr)\n"
            "PermissionError: [Errno 13] Permission denied\n"
        ),
        1,
    ),
    ("sglang", "kernel_arch_unsupported", "RuntimeError: socVersion [x910] does not support opType [Y].\n", None),
    # Orchestrators.
    ("vllm", "health_never_ready", "Normal  Killing  kubelet  Container llm failed startup probe, restarting\n", None),
    # Healthy servers print frightening lines.
    (
        "llamacpp",
        "none",
        (
            "E ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9.00 MiB on device 0: cudaMalloc failed: "
            "out of memory\n"
            "E graph_reserve: failed to allocate compute buffers\n"
            "W sched_reserve: compute buffer allocation failed, retrying without pipeline parallelism\n"
            "I srv llama_server: server is listening on http://127.0.0.1:1\n"
        ),
        None,
    ),
    (
        "sglang",
        "none",
        (
            "[rank0]:[W1 socket.cpp:755] [c10d] The client socket has failed to connect to [localhost]:2 (errno: 97 - "
            "Address family not supported by protocol).\n"
            "Skipping import of cpp extensions due to incompatible torch version\n"
            "[2026-01-01 01:01:01 TP0] KV cache pool is full. Retract requests. #retracted_reqs: 1\n"
            "[2026-01-01 01:01:02 TP0] Decode batch. #running-req: 8, #token: 51, token usage: 0.91, "
            "gen throughput (token/s): 44.10, #queue-req: 4,\n"
        ),
        None,
    ),
    (
        "vllm",
        "none",
        (
            "ERROR 01-01 01:01:01 [fa_utils.py:57] Cannot use FA version 2 is not supported due to FA2 is only "
            "supported on devices with compute capability >= 8\n"
            "WARNING 01-01 01:01:02 [symm_mem.py:58] Device capability 8.6 not supported, no communicator.\n"
            "INFO:     Application startup complete.\n"
            "ERROR 01-01 01:01:03 [serving_chat.py:222] ValueError: no chat template is allowed\n"
            'INFO:     127.0.0.1:1 - "POST /v1/chat/completions HTTP/1.1" 400 Bad Request\n'
        ),
        None,
    ),
)
