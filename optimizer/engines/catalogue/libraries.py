"""Causes told by the dynamic linker: libraries that are missing, too old, or not built for each other."""

from __future__ import annotations

from optimizer.engines.causes import Tier, cause

C, D = Tier.CAUSE, Tier.DECISIVE

CAUSES = (
    cause(
        "driver_cuda_mismatch",
        D,
        r"undefined symbol",
        r"\babi mismatch|c\+\+ abi|symbol not found in flat namespace|version `(?:cxxabi|glibcxx)[^`']*' not found",
        r"lib(?:cudart|cublas|cublaslt|cudnn|nvrtc|nccl|cusparse|cufft|curand|cusolver|nvjitlink"
        r"|cupti|c10_cuda|torch_cuda|nvshmem\w*|amdhip64"
        r"|hsa-runtime64)[\w.-]*: cannot open shared object",
        r"cuda (?:version|runtime).{0,60}(?:mismatch|does not match|differs|is incompatible)",
        r"mismatches the version that was used to compile",
        r"detected that pytorch and .{0,60}compiled with different cuda",
        r"compiled with cuda .{0,40}(?:but|while|does not match)|different cuda (?:major )?version",
        summary="torch, CUDA and a kernel library were not built for each other",
        remedy="install the torch and kernel wheels that this release pins, for one CUDA version",
        unless=r"libcuda\.so\.1: cannot open",
    ),
    cause(
        "environment_broken",
        C,
        r"cannot open shared object file|error while loading shared libraries|dll load failed|cannot load library",
        r"glibc_\d[\d.]*' not found|version `glibc|libcuda\.so|library not loaded: ",
        summary="a library that the program needs is missing on this host, or too old",
        remedy="install it or set LD_LIBRARY_PATH; libcuda.so.1 comes with the driver (in a container: --gpus all)",
    ),
)
