"""What exceptions say by their kind, when no exact cause is named; and the messages that only follow a failure."""

from __future__ import annotations

from optimizer.engines.causes import Stage, Tier, cause

C, D, G, F, S = Tier.CAUSE, Tier.DECISIVE, Tier.GENERAL, Tier.FALLBACK, Tier.SYMPTOM
EARLY = (Stage.UNKNOWN, Stage.ARGUMENTS)
RUNNING = r"event_loop|busy_loop|run_batch|forward_step|execute_model|process_batch_result"
"""Frames of a server that serves: what fails there was no refusal at start."""
SPECULATION = r"speculative|eagle|nextn|spec_decode|mtp|draft"

CAUSES = (
    cause(
        "invalid_flag",
        D,
        r"error: unrecognized arguments?:? *(?P<what>.{0,120})",
        summary="the server does not know a flag: {what}",
        remedy="compare with --help of the installed version: it was renamed, removed, or belongs to another engine",
    ),
    cause(
        "invalid_flag",
        D,
        r"error: ambiguous option: *(?P<what>.{0,160})",
        summary="a flag is gone and its name now starts several others: {what}",
        remedy="use the exact name that --help of the installed version lists",
    ),
    cause(
        "invalid_flag",
        D,
        r"error: argument (?P<what>.{0,160})",
        r"error: the following arguments are required: *(?P<what>.{0,120})",
        r"error: (?P<what>.{0,60}expected (?:one|at least one|\d+) arguments?)",
        r"(?P<what>value .{0,80}cannot be converted to .{0,40})",
        r"^\s*(?:\S+: )?error: (?P<what>(?:no such option|unknown option|unexpected argument"
        r"|invalid value for).{0,120})",
        summary="a flag has a value that the server refuses: {what}",
        remedy="use a value that --help of the installed version lists",
    ),
    cause(
        "unsupported_combination",
        C,
        r"is not divisible by|must be divisible by|not evenly divisible|should be divisible by",
        r"% .{0,60}== 0\b|cannot be divided|must be a (?:multiple|power) of|not a multiple of",
        summary="a size does not divide: {tp}, expert parallelism, block or page size",
        remedy="use a value that divides every head count and block size of the model",
    ),
    cause(
        "unsupported_combination",
        C,
        r"(?<!import)(?:error|exception): .{0,160}(?:does not|doesn't|do not|don't|cannot|can't|can not|not yet"
        r"|currently not|no longer) (?:support|work|be used|be enabled|be combined|compatible|be set)",
        r"(?<!import)(?:error|exception): .{0,200}(?:is|are) (?:not|only|currently only) (?:supported|compatible"
        r"|allowed|implemented|available|applicable)",
        r"(?<!import)(?:error|exception): .{0,160}(?:only (?:support|work|compatible|available|allow)"
        r"|supports? only|unsupported|incompatible|mutually exclusive|conflicts? with"
        r"|requires? (?:that|the|--|a |an )|not implemented|must be (?:set|used|enabled|disabled"
        r"|specified|provided|less|greater|at|equal|one|in|>|<|=|none|true|false|positive|between))",
        r"(?<!import)(?:error|exception): .{0,400}\bplease (?:adjust|disable|enable|set|specify|remove|choose)\b",
        r"notimplementederror",
        r"valueerror: .{0,160}\b(?:(?:smaller|less|larger|greater|higher|lower) than|exceeds?) (?:the )?[a-z_]+",
        r"user-specified .{0,60}(?:greater|larger|longer) than|(?:max_model_len|context[_ -]length) .{0,60}exceeds",
        r"no (?:valid|supported|common|compatible|available) (?:attention )?(?:backend|block size"
        r"|kernel|implementation)",
        r"selected backend .{0,80}(?:is not valid|not valid)",
        r"valueerror: .{0,60}backend .{0,80}(?:not valid|invalid|unsupported|not available)",
        summary="the engine refuses this combination of settings",
        unless=r"out of memory|does not recognize this architecture|illegal memory|asgi application|'nonetype'",
    ),
    cause(
        "unsupported_combination",
        C,
        r"assert(?:ion)?error: .{0,200}(?:must|should|only|require|need|support|cannot)",
        summary="the engine refuses this combination of settings",
        unless=RUNNING,
        stages=(Stage.UNKNOWN, Stage.ARGUMENTS, Stage.INIT, Stage.WEIGHTS, Stage.KV_CACHE, Stage.GRAPHS),
        confidence=0.7,
    ),
    cause(
        "unsupported_combination",
        D,
        r"selected index k out of range",
        summary="more draft tokens are asked for than the draft tree has nodes",
        remedy="keep {draft_tokens} within 1 + k + (steps - 1) * k * k",
    ),
    cause(
        "invalid_flag",
        C,
        r"typeerror: .{0,80}'nonetype'",
        near=SPECULATION,
        unless=rf"{RUNNING}|sigquit received|\bin \w*(?:forward|verify|prepare|draft|extend)\w*\n",
        stages=(Stage.UNKNOWN, Stage.ARGUMENTS),
        summary="a setting that needs companions was given alone",
        remedy="always give steps, topk and number of draft tokens together",
        confidence=0.6,
    ),
    cause(
        "invalid_flag",
        G,
        r"typeerror: (?:'[<>=]+' not supported between instances of"
        r"|unsupported operand type\(s\) for).{0,60}'nonetype'",
        stages=EARLY,
        summary="a setting that needs companions was given alone",
        remedy="always give steps, topk and number of draft tokens together",
        confidence=0.5,
    ),
    cause(
        "invalid_flag",
        G,
        r"validation errors? for \w*(?:config|args|settings)|extra inputs are not permitted",
        r"unexpected keyword argument '(?:speculative|spec)\w*'(?!\w)|invalid literal for int\(\)",
        r"could not convert string to float|json\.decoder\.jsondecodeerror",
        stages=EARLY,
        summary="a setting has a value that the engine refuses",
    ),
    cause(
        "unsupported_combination",
        G,
        r"sizes of tensors must match except",
        near=SPECULATION,
        summary="the draft's steps and token count do not go together in this release",
        remedy="with topk 1 use draft tokens = steps + 1; with overlap scheduling use topk 1",
    ),
    cause(
        "unsupported_combination",
        G,
        r"typeerror: .{0,80}(?:got an unexpected keyword argument|missing \d+ required (?:positional"
        r"|keyword)|takes \d+ positional)",
        r"attributeerror: .{0,100}has no attribute",
        unless=RUNNING,
        stages=(Stage.UNKNOWN, Stage.ARGUMENTS, Stage.INIT, Stage.WEIGHTS, Stage.KV_CACHE, Stage.GRAPHS),
        summary="this release cannot run these settings together (a defect or mixed versions)",
        remedy="drop the setting that was changed, or use another release",
        confidence=0.55,
    ),
    cause(
        "health_never_ready",
        C,
        r"warm-?up (?:error|failed)|initialization failed\. warm|warmup request failed",
        r"did not become ready|not become healthy|server failed to start within",
        r"failed to become (?:ready|healthy)|health ?check timed? ?out|start(?:-| )?up timed? ?out",
        r"timed out waiting for (?:the )?(?:server|engine|model|core)",
        r"server (?:is )?not ready after|not ready within",
        r"waiting for .{0,40}(?:to be )?ready.{0,20}timed out|readiness probe failed",
        r"startup probe failed|container (?:\S{1,60} )?failed (?:startup|liveness|readiness) probe",
        r"did not (?:start|respond) (?:with)?in \d+|not healthy (?:after|within)|timeout waiting for .{0,30}ready",
        remedy="see the last stage in the log; check NO_PROXY, the address that is polled, and the start timeout",
    ),
    cause(
        "scheduler_crash",
        S,
        r"engine core initialization failed|engine process failed to start|enginecore failed to start",
        r"workerproc (?:initialization )?failed",
        r"enginecore hit an exception",
        r"enginedeaderror|engine(?:core)? (?:encountered|is dead|died)|encountered a fatal error",
        r"encountered an issue|already dead, terminating|engine loop (?:has died|is not running)",
        r"asyncenginedeaderror",
        r"received sigquit|sigquit received|child (?:process )?failed|scheduler hit an exception",
        r"detokenizermanager hit an exception|tokenizermanager hit an exception",
        r"dataparallelcontroller hit an exception|scheduler (?:is dead|died)",
        r"(?:worker ?proc|engine process|worker|subprocess|process|core proc|rank \d+"
        r"|child)\b.{0,60}(?:died|is dead|terminated|exited|crashed|dead)\b",
        r"server process terminated unexpectedly|exiting due to (?:model loading|http server) error",
        r"terminate called|what\(\):|ggml_abort|process group watchdog thread terminated",
        r"killing parent|shutting down (?:the )?(?:executor|engine|server) (?:due|because|after)|fatal: ",
        summary="the engine ended, and the lines that say why are missing",
        remedy="fetch the log from further up and from every rank; with no Python error look into the kernel log",
        confidence=0.35,
    ),
    cause(
        "garbage_output",
        C,
        r"!{16,}|nonsense (?:text|output)|incoherent (?:text|output)|repetitive output|mojibake",
        r"\bgarbage (?:text|output|tokens|answers)|gibberish|degenerate repeated|degenerate output|"
        r"nan or inf in logits",
        r"probability tensor contains either `?inf`?, `?nan`?|detected nan|nan (?:detected|"
        r"in) (?:the )?(?:logits|output|hidden)",
        summary="the outputs are not text of this model",
        remedy="drop the setting that was changed (page size, KV cache type, graphs, speculation) and compare again",
    ),
    cause(
        "unsupported_model",
        G,
        r"^keyerror: '[\w.]*(?:weight|scale|bias|layers\.\d+|experts|proj)[\w.]*'|"
        r"weight [^ ]{1,80} not found in params",
        r"^(?:value|key|runtime)error: .{0,60}(?:unexpected|unknown|missing|unloaded|no) (?:weight|parameter|"
        r"tensor)s?\b",
        near=r"load_weights|in load_model|model_loader",
        summary="the checkpoint's weights have other names than this release expects",
        remedy="use a release that knows this checkpoint, or another format of it",
    ),
    cause(
        "unsupported_model",
        G,
        r"^keyerror: '[\w.]*\blayers\.\d+\.[\w.]+'",
        r"loaded_weight\.(?:shape|size)|attempted to load weight",
        summary="the checkpoint's weights have other names or shapes than this release expects",
        remedy="use a release that knows this checkpoint, or another format of it",
    ),
    cause(
        "unsupported_combination",
        F,
        r"^(?:pydantic_core\S*)?(?P<what>(?:value|assertion|notimplemented|type)error)\b(?P<text>: .{0,160}|$)",
        near=r"server_args\.py|arg_groups|/config/|arg_utils\.py|model_config\.py|check_server_args|__post_init__"
        r"|platforms/|/layers/|/models/|/attention/|quantization",
        unless=rf"{RUNNING}|fired up and ready|load_weights",
        stages=(Stage.UNKNOWN, Stage.ARGUMENTS, Stage.INIT, Stage.WEIGHTS),
        summary="the engine refuses these settings for this model{text}",
        remedy="change what distinguishes this configuration from one that starts",
        confidence=0.5,
    ),
    cause(
        "unsupported_combination",
        F,
        r"^(?P<what>(?:value|assertion|notimplemented)error)(?P<text>: .{8,160})",
        stages=EARLY,
        unless=rf"{RUNNING}|fired up and ready|startup complete|(?:decode|prefill) batch",
        summary="the engine refuses these settings{text}",
        remedy="change what distinguishes this configuration from one that starts",
        confidence=0.4,
    ),
    cause(
        "scheduler_crash",
        G,
        r"memory leak detected|pool memory leak|invariant.{0,40}(?:violat|fail)",
        summary="the engine's accounting of its cache failed",
    ),
    cause(
        "scheduler_crash",
        F,
        r"^(?P<what>[\w.]{0,80}(?:error|exception))\b(?P<text>: .{0,160}|:?\s*$)",
        r"(?:^|\] |\s)(?P<what>(?:runtime|assertion|value|type|index|key|attribute|zerodivision"
        r"|unboundlocal|name|internal|recursion|os|stopiteration)error)(?P<text>(?:: .{0,160})?)$",
        summary="the engine failed with {what}{text}",
        remedy="read the traceback above; change what distinguishes this configuration from one that works",
        confidence=0.4,
    ),
)
