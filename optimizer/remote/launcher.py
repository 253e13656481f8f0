"""The text of the script that becomes a server, and the launch command as it is shown.

Decides how a plan is quoted (once, for a POSIX shell), which variables carry our marks, and what is masked.
Leaves when and where it is started to `process.py` and to the guard.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any

from optimizer.errors import BadInput, Problem
from optimizer.remote.wire import quote
from optimizer.secrets import SECRET_NAME
from optimizer.spec import ENV_NAME

MASK = "***"
SECRET_FLAG = re.compile(
    r"^--?(?:(?:[a-z0-9_-]*[_-])?(?:api[_-]key|password|secret|(?:hf|auth|access|bearer|admin)[_-]token)|token|hft)$"
)
"""Not every flag with "token" in it: `max-total-tokens` is a number that people want to see."""
MARKS = {"SPT_NOENV": "1"}
"""`SPT_NOENV` keeps processes that rename themselves (setproctitle) from overwriting their environment, where our
run id is."""

_HEAD = """DIR=$1
if [ "$2" != run ]; then
    export RATCHET_RUN_ID={run_id}
    read -r r_line </proc/$$/stat
    r_line=${{r_line##*') '}}
    set -- $r_line
    echo "$$ ${{20}}" >"$DIR/leader"
    trap : TERM HUP INT QUIT
    exec 3>&2 2>/dev/null
    (exec /bin/sh "$0" "$DIR" run 2>&3 3>&-)
    r_status=$?
    echo "$r_status" >"$DIR/exit.new" && mv "$DIR/exit.new" "$DIR/exit"
    r_end=$(exec /bin/sh -c 'read -r r_line </proc/$$/stat; r_line=${{r_line##*") "}}; set -- $r_line; echo "${{20}}"')
    echo "$$ ${{20}} $r_end" >"$DIR/leader.new" && mv "$DIR/leader.new" "$DIR/leader"
    exit
fi
read -r r_line </proc/$$/stat
r_line=${{r_line##*') '}}
set -- $r_line
r_start=${{20}}
r_mv=$(command -v mv)
r_heed=
if grep -q '^SigIgn:.*[1-79a-f]$' /proc/$$/status; then
    r_heed="$(command -v env) --default-signal=HUP,INT,QUIT"
    $r_heed true 2>/dev/null || r_heed=
fi
rm -f "$0"
ulimit -n "$(ulimit -H -n)" 2>/dev/null
"""
"""A shell cannot heed a signal again that it was told to ignore, as by `nohup ratchet ... &` for a local host."""
_CLEAN = """r_names=$(env | sed -n 's/^\\([A-Za-z_][A-Za-z0-9_]*\\)=.*/\\1/p')
r_home=$HOME
for r_name in $r_names; do command unset "$r_name" 2>/dev/null; done
"""
_CACHES = """printf '%s\\n' "${TORCH_EXTENSIONS_DIR:-${XDG_CACHE_HOME:-$r_home/.cache}/torch_extensions}" \\
    "${FLASHINFER_WORKSPACE_BASE:-$r_home}/.cache/flashinfer" \\
    "${TRITON_CACHE_DIR:-$r_home/.triton/cache}" >"$DIR/caches"
"""
"""Where this server's compilers keep their locks, for cleaning up after a killed start."""


def check_env(env: Mapping[str, str]) -> None:
    """Refuse names that are no variable names and values that no process can receive. Raises BadInput."""
    problems = [
        Problem(f"env.{name}", "is not a variable name", hint="letters, digits and underscores, no digit first")
        for name in env
        if not ENV_NAME.match(name)
    ]
    problems += [Problem(f"env.{n}", "holds a NUL character") for n, v in env.items() if "\0" in v]
    if problems:
        raise BadInput("the environment of the server cannot be used", problems)


def check_argv(argv: Sequence[str]) -> None:
    """Refuse an empty command and NUL characters. Raises BadInput."""
    if not argv or not argv[0]:
        raise BadInput("the launch command is empty", [Problem("launch.command", "is empty")])
    problems = [Problem(f"argv[{i}]", "holds a NUL character") for i, a in enumerate(argv) if "\0" in a]
    if problems:
        raise BadInput("the launch command cannot be used", problems)


def script(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str | None,
    *,
    run_id: str,
    clean_env: bool = False,
    user: str | None = None,
    umask: str = "",
) -> str:
    """Return the launcher of one server: a supervisor that records the exit status, and the server itself.

    `clean_env` starts from an empty environment (the original server has exactly its own variables); `umask` is octal,
    empty for the login's. The file deletes itself before the server runs: it may hold secrets.

    Raises:
        BadInput: a name or value cannot be passed to a process.
    """
    check_env(env)
    check_argv(argv)
    parts = [_HEAD.format(run_id=run_id)]
    parts.append(_CLEAN if clean_env else "r_home=$HOME\n")
    if umask:
        parts.append(f"umask {quote(umask)}\n")
    if cwd:
        parts.append(f"cd {tilde(cwd)} || exit 78\n")
    parts += [f"export {name}={quote(value)}\n" for name, value in {**env, **MARKS}.items()]
    parts.append(f"export RATCHET_RUN_ID={run_id}\n")
    parts.append(_CACHES)
    # The pid is written last: whoever sees it knows that the environment of this process is complete.
    parts.append('echo "$$ $r_start" >"$DIR/pid.new" && "$r_mv" "$DIR/pid.new" "$DIR/pid"\n')
    words = [tilde(argv[0]), *map(quote, argv[1:])]
    parts.append("exec $r_heed " + _as_user(user) + " ".join(words) + "\n")
    return "".join(parts)


def _as_user(user: str | None) -> str:
    name = quote(user or "")
    return f'setpriv --reuid={name} --regid="$(id -g {name})" --init-groups ' if user else ""


def tilde(path: str) -> str:
    """Quote a path for the shell, with a leading `~` standing for the login user's home directory."""
    if path == "~":
        return '"$r_home"'
    if path.startswith("~/"):
        return '"$r_home"/' + quote(path[2:])
    return quote(path)


def masked_command(argv: Sequence[str], env: Mapping[str, str], *, secret_env: frozenset[str] = frozenset()) -> str:
    """Return the launch command as one shell line that can be pasted, secrets replaced by `***`.

    Equal commands give equal lines, whatever the order of the variables.
    """
    shown = [
        f"{name}={MASK if name in secret_env or SECRET_NAME.search(name) else quote(value)}"
        for name, value in sorted(env.items())
    ]
    words = [w if w == MASK or w.endswith(f"={MASK}") else quote(w) for w in masked_argv(argv)]
    if words and argv[0].startswith("~/"):
        words[0] = argv[0] if quote(argv[0][2:]) == argv[0][2:] else words[0]
    return " ".join([*shown, *words])


def masked_argv(argv: Sequence[str]) -> list[str]:
    """Return a command's words with the values of flags such as `--api-key`, which may have several, as `***`."""
    words: list[str] = []
    hide = after_flag = False
    for word in argv:
        name, equals, _ = word.partition("=")
        if after_flag or (hide and not word.startswith("-")):
            words.append(MASK)
            after_flag = False
            continue
        secret = bool(SECRET_FLAG.match(name))
        words.append(f"{name}={MASK}" if equals and secret else word)
        after_flag = hide = secret and not equals
    return words


def masked_flags(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return flags by name with the values of those such as `api-key` replaced by `***`."""
    return {name: MASK if SECRET_FLAG.match(f"--{name}") else value for name, value in flags.items()}


def log_path(run_dir: str) -> str:
    """Return the log file of a run directory."""
    return posixpath.join(run_dir, "log")
