"""Causes between ranks: NCCL and its relatives, rendezvous, the death of a peer, hangs seen by a watchdog."""

from __future__ import annotations

from optimizer.engines.base import Blame
from optimizer.engines.causes import Tier, cause

C, D, G, V, S = Tier.CAUSE, Tier.DECISIVE, Tier.GENERAL, Tier.VICTIM, Tier.SYMPTOM

_NOT_VICTIM = r"^(?!.*(?:communicator was aborted|remote process|by (?:remote )?peer|ncclremoteerror))"

CAUSES = (
    cause(
        "peer_rank_died",
        V,
        r"connection (?:reset|closed|aborted) by (?:remote )?peer",
        r"ncclremoteerror|remote process exiting prematurely|remote process exited or there was a network error",
        r"recvbytes|socket(?:stat|recv|send).{0,60}(?:closed|reset)|failed to recv, got 0 bytes",
        r"broken pipe|brokenpipeerror|errno 32\]|connectionreseterror|errno 104\]|eoferror(?:: ran out|$)",
        r"(?:peer|another|other) (?:rank|process|worker).{0,40}(?:died|exited|failed|terminated|crashed)",
        r"nccl communicator was aborted|communicator (?:was )?aborted|ncclcomm(?:abort|isaborted)",
        r"aborted by (?:user|another)",
        r"connection refused.{0,60}(?:tcpstore|rendezvous|store)",
        r"tcpstore.{0,80}(?:connection|broken|closed)|store->get.{0,80}(?:got error|broken)",
        r"the (?:actor|worker) (?:is )?(?:dead|died|unavailable).{0,60}",
        r"ray\.exceptions\.(?:actordied|workercrashed|rayactor)error",
        r"gloo.{0,80}(?:closed|reset)|\[.{0,80}pair\.cc:\d+\].{0,80}(?:closed|reset|timed out)",
    ),
    cause(
        "nccl_error",
        D,
        r"no algorithm/protocol available|unrecognized element token|ncclinvalidusage",
        r"invalid usage \(run with|ncclinvalidargument",
        r"nccl_(?:algo|proto)\b.{0,60}(?:invalid|unsupported|not supported)",
        r"nccl error.{0,30}(?:invalid usage|invalid argument)",
        summary="NCCL refuses the settings it was given",
        remedy="drop the NCCL_* value that was changed (algorithm, protocol, level), or the duplicated GPU",
        blame=Blame.CONFIG,
        retry=False,
        unless=r"duplicate gpu detected",
    ),
    cause(
        "nccl_error",
        C,
        r"duplicate gpu detected",
        summary="two ranks were given the same GPU",
        remedy="check CUDA_VISIBLE_DEVICES and the ranks' device numbers",
        blame=Blame.CONFIG,
        retry=False,
    ),
    cause(
        "nccl_error",
        C,
        rf"{_NOT_VICTIM}.*\b(?:nccl|rccl|hccl|xccl) error\b",
        r"nccl(?:system|internal|unhandledcuda)error|ncclcomminitrank.{0,40}(?:fail|error)",
        r"unhandled (?:system|cuda) error",
        rf"{_NOT_VICTIM}.*distbackenderror",
        r"caught collective operation timeout",
        r"failure detected by watchdog at work sequence id|last enqueued work: \d+, last completed work",
        r"some nccl operations have failed or timed out|timeout at nccl work|collective operation timeout: worknccl",
        r"nccl warn .{0,120}(?:fail|error|timeout|timed out|unable|no (?:route|socket)|refused|mismatch)",
        r"bootstrap : no socket interface found|no socket interface found",
        r"net/ib.{0,80}(?:error|failed|fatal|got completion)|ibv_\w+ failed",
        r"async event: .{0,30}(?:port error|fatal)",
        r"call to (?:connect|bind|ibv_\w+|recv|sendmsg).{0,60}(?:failed|returned)",
        r"hccl.{0,40}(?:timeout|fail)|ei\d{4}: |notify wait timeout|hcomm.{0,40}fail",
        r"nvshmem.{0,80}(?:error|fail|abort)|deepep.{0,60}(?:timeout|error)",
        r"deep_ep.{0,80}(?:timeout|timed out|failed)|deepep timeout check failed",
        r"assertion failed: \S*(?:deepep|nvshmem)",
        r"torch\.distributed\.disterror|init_process_group.{0,80}(?:timed out|fail)",
        r"rendezvous.{0,60}(?:timed out|timeout|failed|closed)|rendezvoustimeout",
        r"client socket has timed out|distnetworkerror|diststoreerror|"
        r"timed out (?:after \d+ seconds )?waiting for clients",
        r"socket timeout|wait timeout after \d+ms",
        r"gloo.{0,80}(?:timed out|timeout|connectfullmesh failed)|connectfullmesh failed",
        r"mscclpp.{0,60}(?:error|fail)",
        unless=r"out of memory|eaddrinuse|address already in use",
    ),
    cause(
        "nccl_error",
        G,
        r"file \".{0,200}(?:pynccl|pynccl_wrapper|parallel_state|distributed_c10d)\.py\"",
        r"processgroupnccl\.cpp:\d+\].{0,200}(?:terminated with exception|exception|error|fail)",
        r"exception raised from (?:ncclcommwatchdog|checkforncclerrors|checktimeout)",
        near=r"nccl",
        unless=r"out of memory|illegal memory|device-side|cuda error|no kernel image|custom_all_?reduce"
        r"|launch failure|died\.|already dead",
        confidence=0.5,
    ),
    cause(
        "watchdog_timeout",
        C,
        r"watchdog timeout|scheduler watchdog|soft watchdog|hang detected|detected hang",
        r"rpc call to \w+ timed out|timed out.{0,40}(?:execute_model|sample_tokens)|execute_model.{0,60}timed out",
        r"(?:engine|executor|worker|step|execut\w+).{0,50}(?:timed out|timeout) (?:after|in) \d+",
        r"asyncenginedeaderror: .{0,80}timed out|engine (?:step|iteration|loop).{0,30}timed out|enginetimeout",
        r"no progress (?:for|in) \d+ ?s|stuck for \d+",
        r"barrier.{0,60}timed out|monitored ?barrier.{0,80}(?:fail|timed? ?out)",
        unless=r"caught collective operation timeout|warmup error|initialization failed\. warmup",
    ),
    cause(
        "watchdog_timeout",
        G,
        r"shm_broadcast\.py\".{0,40}in (?:dequeue|acquire_read|acquire_write)",
        r"no available (?:shared memory broadcast )?block found in \d+ second",
        r"(?:^|\s|\.)timeouterror\b",
        r"couldn't get a response from detokenizer|health check failed.{0,80}(?:detokenizer|timeout|seconds)",
        summary="a worker stopped answering",
        remedy="look at the rank that hangs (py-spy); lower {chunk} or prompt lengths; or a collective out of step",
        confidence=0.6,
    ),
)
