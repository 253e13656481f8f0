"""The wheel holds all that the program needs, and works in an environment of its own, far from the repository."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("api", "optimizer", "storage")
CACHES = ("__pycache__", ".mypy_cache", ".ruff_cache")
Run = Callable[..., subprocess.CompletedProcess[str]]

if importlib.util.find_spec("hatchling") is None and not os.environ.get("CI"):
    pytest.skip("hatchling is not installed: `make venv` brings it", allow_module_level=True)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build it without isolation, so that nothing is fetched."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run([*build, "-w", str(folder), str(ROOT)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return next(folder.glob("ratchet_tune-*.whl"))


@pytest.fixture(scope="module")
def run(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run a program of a fresh environment that has the wheel, and this one's dependencies by links."""
    folder = tmp_path_factory.mktemp("elsewhere")
    venv.create(folder / "v", with_pip=False)
    python = folder / "v" / "bin" / "python"
    ours = Path(sysconfig.get_path("purelib"))
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    theirs = folder / "v" / "lib" / version / "site-packages"
    for part in ours.iterdir():  # an editable installation has parts of our packages there: never link what pip writes
        if "ratchet" not in part.name and part.name not in PACKAGES and not (theirs / part.name).exists():
            (theirs / part.name).symlink_to(part)
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    done = subprocess.run([*install, str(wheel)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    kept = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "RATCHET_DB_URL"}}
    env = kept | {"RATCHET_HOME": str(folder / "home")}

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        program = [str(folder / "v" / "bin" / words[0]), *words[1:]]
        done = subprocess.run(program, cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done

    return call


def test_every_file_of_the_packages_is_inside(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
    files = {p.relative_to(ROOT) for name in PACKAGES for p in (ROOT / name).rglob("*") if p.is_file()}
    expected = {str(p) for p in files if not set(p.parts) & set(CACHES) and p.suffix != ".pyc"}
    assert expected - inside == set()
    kinds = {Path(name).suffix for name in expected}
    assert kinds >= {".py", ".j2", ".css", ".js", ".sh", ".md", ".json", ".yaml"}


def test_what_lives_outside_the_packages_is_inside_too(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
    versions = {f"storage/alembic_tree/versions/{p.name}" for p in (ROOT / "alembic/versions").glob("*.py")}
    assert versions
    assert versions | {"storage/alembic_tree/env.py"} <= inside
    assert {"api/demo/demo.yaml", "api/demo/requirements-demo.lock"} <= inside


def test_nothing_else_is_inside(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
    assert {t for t in tops if not t.endswith(".dist-info")} == set(PACKAGES)


def test_the_installed_program_is_the_wheel_s(run: Run) -> None:
    where = run("python", "-c", "import api, optimizer, storage; print(api.__file__, storage.__file__)").stdout
    assert str(ROOT) not in where


def test_commands_work_elsewhere(run: Run, tmp_path: Path) -> None:
    assert "spec-type" in run("ratchet", "space", "show", "llamacpp", "--json").stdout
    url = f"sqlite:///{tmp_path / 'r.db'}"
    run("ratchet", "db", "upgrade", "--db", url)
    assert "in order" in run("ratchet", "db", "check", "--db", url).stderr
    assert "Usage" in run("ratchet", "demo", "--help").stdout


LOADS = """
from importlib.resources import files
from api.client import Ratchet
from api.demo.assets import lock_file
from optimizer.bench.workload import from_spec
from optimizer.engines.registry import ENGINE_NAMES, find_engine
from api.reports.html import environment
from storage import migrate

assert len(from_spec({"preset": "five-prompts"}).prompts) == 5
assert all(find_engine(name).presets(None) for name in ENGINE_NAMES)
assert "--hash" in lock_file().read_text()
assert files("api.demo").joinpath("demo.yaml").is_file()
assert files("optimizer.remote").joinpath("sh/guard.sh").is_file()
for name in files("api.pages").joinpath("templates").iterdir():
    environment("api.pages").get_template(name.name)
for name in ("night.html.j2", "night.md.j2"):
    environment("api.reports").get_template(name)
assert migrate.head() == "HEAD"
print(Ratchet("http://127.0.0.1:1").url)
"""


def test_templates_prompts_flags_scripts_and_migrations_load(run: Run) -> None:
    from storage import migrate

    assert run("python", "-c", LOADS.replace("HEAD", str(migrate.head()))).stdout.strip() == "http://127.0.0.1:1"
