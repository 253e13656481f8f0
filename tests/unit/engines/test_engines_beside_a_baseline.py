"""A candidate that lacks a kernel or a package does not end a study whose baseline runs on the same host."""

from __future__ import annotations

import pytest

from optimizer import deaths
from optimizer.engines.base import Blame
from optimizer.run_trial import failed

MISSING_KERNEL = "ninja: build stopped: subcommand failed.\n"
MISSING_PACKAGE = "ImportError: suffix decoding needs a package that is not here\n"
OTHER_WEIGHTS = "KeyError: 'layers.3.mlp.experts.w2_scale'\n"


@pytest.mark.parametrize("log_text", (MISSING_KERNEL, MISSING_PACKAGE, OTHER_WEIGHTS))
def test_what_only_a_candidate_needs_makes_it_infeasible_and_does_not_stop_the_study(log_text: str) -> None:
    alone = deaths.explained("vllm", log_text, 1, {}).explanation
    assert alone.stop_study or failed(alone, 1).state == "interrupted"
    beside = deaths.beside_a_baseline(alone)
    assert (beside.blame, beside.stop_study) == (Blame.CONFIG, False)
    assert failed(beside, 1).state == "infeasible"
    assert "baseline" in beside.summary


@pytest.mark.parametrize(
    "log_text",
    (
        "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n",
        "OSError: [Errno 28] No space left on device\n",
        "RuntimeError: The NVIDIA driver on your system is too old (found version 12020)\n",
        "ConnectTimeout: HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded\n",
    ),
)
def test_what_harms_every_server_of_the_host_is_no_setting_of_a_candidate(log_text: str) -> None:
    alone = deaths.explained("vllm", log_text, 1, {}).explanation
    assert alone.blame is not Blame.CONFIG
    assert deaths.beside_a_baseline(alone) == alone
