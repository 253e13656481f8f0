"""The launcher's text and the command as it is shown."""

from __future__ import annotations

import pytest

from optimizer.errors import BadInput
from optimizer.remote import launcher


def test_names_outside_the_grammar_are_refused_before_anything_is_sent() -> None:
    for name in ("A-B", "1A", "A B", "A=B", "", "A;B", "$(id)"):
        with pytest.raises(BadInput) as caught:
            launcher.script(["x"], {name: "1"}, None, run_id="r")
        assert caught.value.problems[0].path == f"env.{name}"


@pytest.mark.parametrize(("argv", "env"), [([], {}), ([""], {}), (["a\0"], {}), (["a"], {"A": "\0"})])
def test_what_no_process_can_receive_is_refused(argv: list[str], env: dict[str, str]) -> None:
    with pytest.raises(BadInput):
        launcher.script(argv, env, None, run_id="r")


def test_only_the_program_and_the_directory_know_a_tilde() -> None:
    text = launcher.script(["~/bin/server one", "~/model"], {"P": "~/x"}, "~/work dir", run_id="r")
    assert "exec $r_heed \"$r_home\"/'bin/server one' '~/model'\n" in text
    assert "cd \"$r_home\"/'work dir' || exit 78\n" in text
    assert "export P='~/x'\n" in text


def test_secrets_are_masked_by_name_by_mark_and_by_flag() -> None:
    shown = launcher.masked_command(
        ["~/v/python", "--api-key", "s1", "--hf-token=s2", "--max-total-tokens", "5", "--token", "s6", "it's"],
        {
            "HF_TOKEN": "s3",
            "PLAIN": "a b",
            "MARKED": "s4",
            "TOKENIZERS_PARALLELISM": "no",
            "AWS_SECRET_ACCESS_KEY": "s5",
        },
        secret_env=frozenset({"MARKED"}),
    )
    assert not [s for s in ("s1", "s2", "s3", "s4", "s5", "s6") if s in shown.replace("it's", "")]
    assert "PLAIN='a b'" in shown and "HF_TOKEN=***" in shown and "TOKENIZERS_PARALLELISM=no" in shown
    assert "--api-key ***" in shown and "--max-total-tokens 5" in shown and "~/v/python" in shown


def test_every_value_of_a_secret_flag_is_masked_in_every_spelling() -> None:
    argv = ["x", "--api-key", "s1", "s2", "--port", "1", "--api_key", "-s3", "--hf_token=s4", "-hft", "s5", "-c", "8"]
    masked = " ".join(launcher.masked_argv(argv))
    assert masked == "x --api-key *** *** --port 1 --api_key *** --hf_token=*** -hft *** -c 8"


def test_equal_commands_are_shown_equally() -> None:
    one = launcher.masked_command(["x"], {"A": "1", "B": "2"})
    assert one == launcher.masked_command(["x"], {"B": "2", "A": "1"})


def test_a_launcher_deletes_itself_before_the_server_runs() -> None:
    text = launcher.script(["server"], {"HF_TOKEN": "x"}, None, run_id="r")
    assert text.index('rm -f "$0"') < text.index("exec $r_heed server")
