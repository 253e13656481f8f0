"""Causes in models: not found, not allowed, not known to the release, damaged, or a draft that does not fit."""

from __future__ import annotations

from optimizer.engines.base import Blame
from optimizer.engines.causes import Stage, Tier, cause

C, D, G = Tier.CAUSE, Tier.DECISIVE, Tier.GENERAL
DRAFT = r"eagle|draft|speculative|spec_decode|medusa|mtp|nextn|standalone_worker|proposer|dflash|d2t"
"""What shows that a shape or a missing weight belongs to the draft model."""

CAUSES = (
    cause(
        "draft_mismatch",
        D,
        r"same vocab(?:ulary)?(?: size)?(?: as the target)?",
        r"draft.{0,60}vocab.{0,60}(?:match|differ|same)|vocab.{0,60}(?:match|differ).{0,60}draft",
        r"draft (?:model )?(?:and|vs\.?) target.{0,60}(?:differ|mismatch|do not match|not match"
        r"|incompatible)",
        r"target and draft.{0,60}(?:must|should|differ|mismatch)",
        r"draft.{0,40}(?:incompatible|not compatible|does not match|doesn't match|mismatch)|incompatible.{0,20}draft",
        r"set_eagle3_layers_to_capture|must be divisible by n_predict|set_aux_hidden_state_layers",
        r"eagle.{0,60}(?:mismatch|does not match|not compatible|expects|hidden size)",
        r"(?:mismatch|does not match).{0,60}eagle",
        r"hidden_states\.shape\[-1\] == input_embeds\.shape\[-1\]|draft.{0,40}hidden[ _]size",
        r"tokenizer.{0,40}draft.{0,40}(?:differ|match)",
        r"(?:loaded_weight|param).{0,40}(?:eagle|draft|mtp)",
        r"no (?:mtp|nextn) (?:layers|weights|modules)|num_nextn_predict_layers",
        r"does not (?:have|contain) (?:mtp|nextn|eagle)",
    ),
    cause(
        "draft_mismatch",
        C,
        r"(?:sizes? of tensor|size mismatch|shapes? (?:mismatch|cannot be multiplied|of)"
        r"|mat1 and mat2 shapes|dimension mismatch|shape\w* .{0,40}(?:do not|does not|must) match"
        r"|loaded_weight\.(?:shape|size)|attempted to load weight|tensor size mismatch)",
        r"keyerror: '?\"?(?:model\.)?(?:embed_tokens|lm_head|midlayer|fc|d2t|t2d|eagle|layers\.\d+"
        r"|mtp|enorm|hnorm|eh_proj|shared_head)\b",
        r"assert.{0,40}(?:hidden_size|hidden_states|embed).{0,40}==",
        r"weights? .{0,40}(?:not initialized|missing) from .{0,40}checkpoint|missing key\(",
        r"unexpected key\(s\)",
        near=DRAFT,
        unless=r"expected size \d{1,2} but got size \d{1,2} for",
        summary="the draft model's tensors do not fit the target",
    ),
    cause(
        "draft_mismatch",
        G,
        r"^\s*keyerror: '(?:embed_tokens|lm_head|midlayer|fc|d2t|t2d|hidden_norm)[\w.]*'",
        summary="the draft head's weights have other names than this release expects",
    ),
    cause(
        "unsupported_model",
        G,
        r"^keyerror: '[a-z][a-z0-9_.-]{1,40}'",
        near=r"configuration_auto|config_mapping|auto_factory|modeling_auto",
        summary="the installed transformers do not know the model's type",
        remedy="upgrade the engine and transformers together",
    ),
    cause(
        "unsupported_model",
        G,
        r"'(?!speculative|model|vllm|scheduler|cache|parallel|load|compilation|server)\w{2,40}config' object has no",
        r"did not match any variant of untagged enum modelwrapper",
        summary="the model's configuration is of a kind that this release does not know",
        remedy="upgrade the engine, transformers and tokenizers together",
    ),
    cause(
        "unsupported_model",
        C,
        r"does not recognize this architecture|model type [`'\"]?[\w.-]+[`'\"]? but transformers",
        r"model architectures? .{0,120}(?:not supported|unsupported|failed to be inspected|has no|are not)",
        r"unsupported (?:model )?architectures?:|architectures? .{0,60}not supported",
        r"unknown model architecture|unsupported model (?:type|architecture|class)",
        r"unknown (?:model_type|pre-tokenizer)|unrecognized (?:model in|configuration class)",
        r"no model class|cannot find model (?:class|module)|no model architectures are specified",
        r"not supported by (?:sglang|vllm|transformers)(?! as)|no (?:sglang|vllm) implementation",
        r"does not support (?:this )?model|(?<!draft )model .{0,60}is not supported (?:yet|currently|by|in)",
        r"trust_remote_code|trust-remote-code|contains custom code which must be executed",
        r"unknown quantization method|quantization method .{0,60}(?:not supported|is not|unknown)",
        r"unsupported quant\w* (?:type|method|config|scheme)|cannot find the config file for",
        r"no compressed-tensors compatible scheme|unsupported (?:ggml|gguf|tensor) type",
        r"rope_scaling.{0,60}(?:must|should|invalid)|unknown rope scaling|unsupported rope",
        r"has no attribute '(?:num_attention_heads|hidden_size|vocab_size|rope_\w+)'",
        r"there is no module or parameter named|following weights were not initialized",
        r"tensor '[^']+' (?:has wrong shape|not found)|missing tensor|wrong number of tensors",
        r"wrong shape; expected|invalid ggml type",
        summary="this release of the engine cannot serve the model",
        unless=r"attention backend|speculative algorithm",
    ),
    cause(
        "model_not_found",
        C,
        r"429 (?:client error|too many requests)|50[0234] server error.{0,80}(?:huggingface|hf\.co)",
        r"(?:huggingface\.co|hf\.co|modelscope|s3).{0,160}(?:timed out|timeout|max retries|connection"
        r"|unreachable|name resolution|failed to resolve)",
        r"(?:max retries exceeded|failed to establish a new connection|name resolution|connecttimeout"
        r"|readtimeouterror).{0,160}(?:huggingface|hf\.co|modelscope)",
        r"we couldn't connect to '?https?://(?:huggingface|hf)|couldn't reach .{0,40}hub",
        r"download failed after \d+ attempts",
        summary="the model could not be downloaded",
        remedy="download the model beforehand and give its local path, or set HF_HUB_OFFLINE=1; then try again",
        blame=Blame.INFRASTRUCTURE,
        retry=True,
        stop=False,
    ),
    cause(
        "model_not_found",
        C,
        r"gated repo|gatedrepoerror|access to model .{0,80}restricted",
        r"must have access to it and be authenticated|401 client error|403 (?:client error|forbidden)",
        r"invalid (?:username|user access) token|authentication.{0,40}huggingface|please log in",
        summary="access to the model is restricted",
        remedy="give the host a token with access (HF_TOKEN), or the local path of a copy with HF_HUB_OFFLINE=1",
    ),
    cause(
        "model_not_found",
        C,
        r"is not a (?:local folder and is not a )?valid model identifier|is not a local folder",
        r"repository ?not ?found|repositorynotfounderror|revisionnotfound|entrynotfound",
        r"localentrynotfound|hfvalidationerror|repo id must",
        r"404 client error|cannot find any model weights|no (?:model )?weights? (?:files? )?found",
        r"can't load (?:the )?(?:configuration|tokenizer|config|model)|no tokenizer file found",
        r"unable to load (?:vocabulary|weights) from|does not appear to have a? ?file named",
        r"error no file named",
        r"no such file or directory: '?[^']*(?:config\.json|safetensors|tokenizer|\.gguf|\.bin"
        r"|\.index\.json|/models?/|checkpoint)",
        r"(?:model|draft|checkpoint|tokenizer)(?: path)?[ _].{0,120}(?:does not exist|not found"
        r"|doesn't exist|no such file)",
        r"(?:path|file|directory) .{0,120}(?:does not exist|doesn't exist)",
        r"invalid (?:repository|model) (?:id|id or local directory)|invalid repository",
        r"failed to open gguf file|gguf_init_from_file: failed to open|failed to open .{0,200}\.gguf",
        r"unable to open file|required file is not available in cache",
        r"cannot find an appropriate cached snapshot|outgoing traffic has been disabled",
        summary="the model (or one of its files) is not where the settings say",
        unless=r"nvcc|ninja|libcuda|cannot open shared object|/dev/shm|custom_ops|g\+\+",
    ),
    cause(
        "model_not_found",
        G,
        r"filenotfounderror: ",
        summary="a file that the server needs does not exist",
        remedy="correct the path named in the message",
        unless=r"nvcc|ninja|libcuda|cannot open shared object|/dev/shm|custom_ops|g\+\+",
    ),
    cause(
        "model_not_found",
        C,
        r"safetensors?error|safetensor_?error|headertoolarge|header too large|metadataincompletebuffer",
        r"incomplete metadata|invalid ?header|deserializing header|file not fully covered",
        r"invalid magic characters|bad magic|invalid gguf|gguf.{0,40}(?:corrupt|truncated|invalid)",
        r"corrupted or incomplete|tensor .{0,80}data is not within the file bounds",
        r"not within file bounds|failed to read (?:magic|tensor|header)",
        r"unexpected(?:ly)? (?:end of|reached end)",
        r"pytorchstreamreader failed|file is (?:truncated|corrupt)|checksum mismatch",
        r"consistency check failed|git-lfs|unpicklingerror",
        summary="a file of the model is damaged or not complete",
        remedy="download it again and compare sizes; an interrupted download or a git-lfs pointer looks like this",
        stages=(Stage.UNKNOWN, Stage.ARGUMENTS, Stage.INIT, Stage.WEIGHTS),
    ),
)
