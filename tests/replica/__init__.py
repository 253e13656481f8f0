"""A test double of an SGLang server, for machines where none can run. It is not SGLang and computes nothing.

It behaves like one where a tuner looks: flags and their rewriting, start-up phases and log lines, renamed children that
leave the group and the session, slow release of (pretended) GPU memory, HTTP endpoints, speeds that depend on the flags
by a documented formula, and failures on request at each phase. Start it with `python -m tests.replica --model-path m
--port 30000`, or `python tests/replica/__main__.py ...`; `--replica-help` lists what can be scripted.
"""
