"""pyproject.toml, the locks, environment.yml and the set-up program describe one environment; the wheel is complete."""

import re
import socket
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from importlib.metadata import distributions

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from perfmodel import data
from tools import env

ROOT = env.ROOT
README = (ROOT / "README.md").read_text("utf8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf8"))
LOCKS = {path.stem: path for path in sorted((ROOT / "locks").glob("*.txt"))}
GROUPS = pytest.mark.parametrize("group", PROJECT["dependency-groups"])
PINNED = re.compile(r"[a-z0-9.-]+==[^\s;]+(?: ; [^\\]+)?(?: \\\n    --hash=sha256:[0-9a-f]{64})+\n")


def entries(group):
    """Pinned requirements of a lock, by name; a name may occur once for each of several Pythons."""
    text = re.sub(r" \\\n    --hash=\S+", "", LOCKS[group].read_text("utf8"))
    pinned = {}
    for line in text.splitlines():
        requirement = Requirement(line)
        pinned.setdefault(canonicalize_name(requirement.name), []).append(requirement)
    return pinned


def versions(group):
    """Name -> the versions it may have."""
    return {name: {str(entry.specifier) for entry in found} for name, found in entries(group).items()}


def direct(group):
    """What a group asks for, with the groups inside it, the package's own needs and the chapters'."""
    asked, todo = [], [group]
    if group in env.GROUPS:
        asked = [*PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"]["course"]]
    while todo:
        for entry in PROJECT["dependency-groups"][todo.pop()]:
            if isinstance(entry, dict):
                todo.append(entry["include-group"])
            else:
                asked.append(entry)
    return [Requirement(entry) for entry in asked]


def test_each_group_has_a_lock():
    assert set(LOCKS) == set(PROJECT["dependency-groups"])
    assert set(LOCKS) - {"uv"} == {*env.GROUPS, env.APART}


@GROUPS
def test_a_lock_holds_versions_and_hashes_and_names_no_host(group):
    text = LOCKS[group].read_text("utf8")
    assert PINNED.sub("", text) == ""
    assert PINNED.search(text)


@GROUPS
def test_a_lock_answers_each_direct_dependency(group):
    pinned = entries(group)
    for asked in direct(group):
        found = pinned.get(canonicalize_name(asked.name), [])
        assert found, f"locks/{group}.txt lacks {asked}: make locks"
        for entry in found:
            version = str(entry.specifier).removeprefix("==")
            assert asked.specifier.contains(version), f"locks/{group}.txt has {version}, asked is {asked}: make locks"


@pytest.mark.parametrize(("inner", "outer"), [("book", "lab"), ("lab", "test")])
def test_groups_nest_and_their_locks_agree(inner, outer):
    inside, outside = versions(inner), versions(outer)
    assert {name: outside.get(name) for name in inside} == inside
    assert {str(entry) for entry in direct(inner)} <= {str(entry) for entry in direct(outer)}


def test_the_package_itself_needs_numpy_alone():
    assert [Requirement(entry).name for entry in PROJECT["project"]["dependencies"]] == ["numpy"]


def test_conda_and_binder_get_the_laboratory_lock():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text("utf8"))
    python, pip, packages = environment["dependencies"]
    assert (pip, packages) == ("pip", {"pip": ["-r locks/lab.txt"]})
    assert python.removeprefix("python=") in SpecifierSet(PROJECT["project"]["requires-python"])


def test_every_set_up_admits_the_same_pythons():
    admitted = f">={env.OLDEST[0]}.{env.OLDEST[1]},<{env.BEYOND[0]}.{env.BEYOND[1]}"
    assert PROJECT["project"]["requires-python"] == admitted
    makefile = (ROOT / "Makefile").read_text("utf8")
    assert f"{env.OLDEST} <= sys.version_info < {env.BEYOND}" in makefile
    assert "--python-version {}.{}".format(*env.OLDEST) in makefile


def test_the_running_environment_is_the_locked_one():
    """What the tests run on is what the lock says, neither more nor less, but for the tools that install it."""
    wanted = {
        name: entry.specifier
        for name, found in entries("test").items()
        for entry in found
        if entry.marker is None or entry.marker.evaluate()
    }
    running = {
        canonicalize_name(found.metadata["Name"]): found.version
        for found in distributions(path=[sysconfig.get_path("purelib")])
    }
    assert {name: running.get(name) for name, spec in wanted.items() if running.get(name) not in spec} == {}
    assert set(running) - set(wanted) <= {"perfmodel", "pip", "setuptools", "uv"}


def test_the_wheel_holds_the_package_and_its_data(tmp_path):
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    package = {
        path.relative_to(ROOT).as_posix() for path in (ROOT / "perfmodel").rglob("*") if path.suffix in (".py", ".toml")
    }
    assert packed == package
    assert any(name.startswith("perfmodel/data/") and name.endswith(".toml") for name in packed)


def test_the_citation_names_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf8"))
    required = {"cff-version", "message", "title", "authors"}
    assert required <= set(citation)
    assert citation["version"] == PROJECT["project"]["version"]
    assert citation["license"] == PROJECT["project"]["license"]


@pytest.mark.parametrize("port", ["80000", "0", "80.5", "http"])
def test_serve_refuses_what_is_no_port(port):
    done = subprocess.run(
        [sys.executable, "tools/serve.py", port], capture_output=True, text=True, cwd=ROOT, timeout=60
    )
    assert (done.returncode, done.stderr) == (1, f"PORT={port} must be a whole number from 1 to 65535\n")


def test_serve_names_a_busy_port_in_one_line():
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        done = subprocess.run(
            [sys.executable, "tools/serve.py", str(port)], capture_output=True, text=True, cwd=ROOT, timeout=60
        )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert f"PORT={port} cannot be served" in done.stderr
    assert "make serve PORT=" in done.stderr


def test_the_readme_names_every_make_target():
    targets = re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text("utf8"), re.MULTILINE)
    rows = re.findall(r"^\| `make ([a-z]+)` \|", README, re.MULTILINE)
    assert sorted(rows) == sorted(set(targets) - {"help"})


def test_the_data_file_of_the_readme_loads(tmp_path):
    [text] = re.findall(r"^```toml\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    path = tmp_path / "mine.toml"
    path.write_text(text, "utf8")
    mine = data.load(path).accelerator("my-gpu")
    assert (mine.memory_capacity, mine.fp8_flops, mine.link) == (96e9, 1.8e15, data.link("nvlink4"))
