"""Causes in the Python installation: kernels that are missing or cannot be built, packages that clash, imports."""

from __future__ import annotations

from optimizer.engines.causes import Tier, cause

C, D, G = Tier.CAUSE, Tier.DECISIVE, Tier.GENERAL
_KERNELS = (
    r"(?:sgl_kernel|sgl-kernel|sglang-kernel|vllm\._\w+|_c\b|_moe_c\b|_rocm_c\b|flash_?attn|flash_?infer|"
    r"deep_?gemm|deep_?ep|flash_?mla|vllm_flash_attn|aiter|cutlass|tilelang|fbgemm|marlin|quack)"
)

CAUSES = (
    cause(
        "kernel_not_compiled",
        C,
        rf"(?:no module named|cannot import name).{{0,60}}{_KERNELS}",
        rf"(?:module|package|object) '?{_KERNELS}[\w.]*'? .{{0,20}}has no attribute",
        r"'_opnamespace' '\w+' object has no attribute|operator (?!torchvision).{0,60}does not exist",
        r"could not find schema for|no such operator|_opnamespace",
        r"name '(?:sgl_|fused_|moe_|awq_|gptq_|flash_|deep_gemm|ops|_custom_ops|vllm_|cutlass_|tree_"
        r"|build_tree|merge_state)\w*' is not defined",
        r"could not run '[\w:]+' with arguments from the '\w+' backend|notimplementederror: could not run",
        rf"(?:please|you (?:need|must|should)|try to|run:?) .{{0,20}}(?:pip )?install .{{0,40}}{_KERNELS}",
        rf"{_KERNELS}\w* (?:is|are|was) not (?:installed|available|compiled|built|found|supported in this build)",
        rf"(?:installed|current) .{{0,30}}{_KERNELS}.{{0,60}}(?:less than|older than|lower than"
        rf"|is required|minimum|must be)",
        r"(?:flashinfer|sgl[-_]kernel"
        r"|sglang-kernel)\w* is installed with version .{0,60}less than the minimum",
        r"uninstall the old version|please reinstall the latest version",
        r"expected at most \d+ argument\(s\) but received|_c::\w+\(\) (?:expected|is missing|got)",
        summary="a kernel that this release calls is missing from the installed kernel package",
        remedy="install the kernel package that this release pins (sgl-kernel, flashinfer, vLLM's own wheel)",
        unless=r"undefined symbol|abi mismatch|cannot open shared object",
    ),
    cause(
        "kernel_not_compiled",
        C,
        r"error building extension|ninja: build stopped|ninja is required",
        r"\d+ errors? detected in the compilation of",
        r"failed to (?:build|compile|jit)|jit compil\w+ failed|compilation failed|nvcc fatal",
        r"nvcc error|nvcc: not found",
        r"cuda_home environment variable is not set|could not find (?:nvcc|cuda_home|ninja)",
        r"unable to find nvcc|no such file or directory: '[^']*(?:nvcc|ninja|ptxas|c\+\+|g\+\+|gcc)'",
        r"calledprocesserror: command '\[?'?(?:ninja|nvcc|gcc|/usr/bin/gcc|c\+\+|cc)",
        r"failed to find c compiler|no c compiler|cuda\.h: no such file|python\.h: no such file",
        r"fatal error: \S+\.h(?:pp)?: no such file",
        r"cannot find -lcuda|ld returned 1 exit status",
        r"torch\._inductor\.exc\.\w*error.{0,80}(?:compil|cpp)|cppcompileerror",
        r"triton.{0,60}compilationerror|ptxas.{0,40}(?:failed|error)|nvrtc.{0,40}(?:error|failed)",
        r"hipcc.{0,40}(?:error|failed)",
        r"failed to generate cutlass kernels|deep_?gemm.{0,80}(?:compil|jit).{0,60}(?:fail|error)",
        r"no suitable .{0,30}kernel",
        summary="a kernel could not be compiled on this host",
        remedy="install the compiler chain (nvcc of the right CUDA, ninja, gcc, headers) or a prebuilt kernel cache",
        unless=r"permission denied|errno 13\]|no space left|unsupported gpu architecture"
        r"|is not defined for option 'gpu-name'|out of memory",
    ),
    cause(
        "kernel_not_compiled",
        G,
        r"^(?:\w+\.)*(?:runtime|assertion|value|type)error\b",
        near=r"(?:deep_gemm|flashinfer)/jit/|triton/compiler/|torch/utils/cpp_extension\.py",
        unless=r"permission denied|no space left|out of memory|illegal memory",
        summary="a kernel could not be compiled on this host",
        remedy="install the compiler chain (nvcc of the right CUDA, ninja, gcc, headers) or a prebuilt kernel cache",
    ),
    cause(
        "environment_broken",
        C,
        r"is already used by a transformers|numpy\.dtype size changed",
        r"numpy 1\.x cannot be run in numpy 2|module compiled against (?:api|abi) version",
        r"a module that was compiled using numpy",
        r"requires (?:transformers|torch|numpy|flashinfer|tokenizers|huggingface|pydantic"
        r"|triton)\S*[<>=!]=?",
        r"is required for a normal functioning of this module|but it was not found in your environment",
        r"couldn't instantiate the backend tokenizer|you need to have \S+(?: or \S+)? installed",
        r"versionconflict|distributionnotfound|packagenotfounderror|pkg_resources\.\w+error",
        r"incompatible (?:version|package)s? of",
        r"cannot import name '\w+' from(?: partially initialized module)? '(?:transformers|torch"
        r"|huggingface_hub|tokenizers|numpy|pydantic|outlines|xgrammar|triton|torchvision|torchao"
        r"|compressed_tensors|fastapi|starlette|openai)",
        r"module '(?:transformers|torch|numpy|triton|pydantic|huggingface_hub|xgrammar"
        r"|outlines)[\w.]*' has no attribute",
        r"operator torchvision::nms does not exist|failed to import transformers\.|entry ?point.{0,40}not found",
        summary="packages of the installation do not fit each other",
        remedy="restore the versions that this release of the engine pins; nothing can run until then",
    ),
    cause(
        "environment_broken",
        G,
        r"^(?:\w+\.)*(?:value|attribute|type|runtime|name)error: ",
        near=r"/(?:transformers|torch|torchvision|numpy|triton|flashinfer|tokenizers)/__init__\.py\""
        r", line \d+, in <module>",
        summary="a package of the installation fails while it is imported",
        remedy="restore the versions that this release of the engine pins",
    ),
    cause(
        "environment_broken",
        G,
        r"(?:importerror|modulenotfounderror):(?: |$)",
        summary="a module cannot be imported",
        remedy="install what is missing, in the version that this release pins",
    ),
    cause(
        "environment_broken",
        G,
        r"cannot re-initialize cuda in forked subprocess",
        r"before the current process has finished its bootstrapping phase|no such file or directory: '[^']*<stdin>'",
        summary="the program that starts the server does not let it start workers (by fork, or by spawn)",
        remedy="start it by its own command; where something touches CUDA early, "
        "with VLLM_WORKER_MULTIPROC_METHOD=spawn",
    ),
    cause(
        "environment_broken",
        G,
        r"syntaxerror: |indentationerror: |bad magic number in|pickle\.unpicklingerror|zipimport",
        summary="a file of the installation is damaged or meant for another Python",
        remedy="reinstall the engine for this Python",
    ),
)
