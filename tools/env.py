"""Make `.venv` and install a dependency group into it: `python tools/env.py book` (or `lab`, or `test`).

The peers that `make bench` asks want old versions of much, so the group `bench` has an environment of its own.

It needs a Python that pyproject.toml admits and nothing else: uv, which installs the rest, comes from its own hashed
lock. The environment is made anew when a lock changed, each group is installed once, and a call that finds all in place
does nothing.
"""

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GROUPS = ("book", "lab", "test")  # each holds the ones before it
APART = "bench"
SCRIPTS = "Scripts" if os.name == "nt" else "bin"
OLDEST, BEYOND = (3, 11), (3, 15)  # requires-python
MAC = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
BROWSERS = ("chromium", "google-chrome", "chromium-browser", MAC)


def digest(*paths):
    """Hash of the contents of some files."""
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in sorted(paths))).hexdigest()


def run(*command, stdout=None, **env):
    subprocess.run([str(part) for part in command], check=True, cwd=ROOT, stdout=stdout, env=os.environ | env)


def debian(*packages):
    """Install Debian packages; False where this is not Debian or we are not root."""
    if not (shutil.which("apt-get") and os.geteuid() == 0):
        return False
    print(f"Installing {' '.join(packages)} with apt-get", flush=True)
    quiet = {"DEBIAN_FRONTEND": "noninteractive", "stdout": subprocess.DEVNULL}
    run("apt-get", "update", "-qq", **quiet)
    run("apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages, **quiet)
    return True


def chromium():
    """Path of the Chromium that the browser tests drive: the one CHROMIUM names, or the system's; None without."""
    names = (os.environ.get("CHROMIUM", ""), *BROWSERS)
    return next(filter(None, map(shutil.which, names)), None)


def create(folder):
    """A new, empty environment with pip and uv."""
    package = f"python3.{sys.version_info.minor}-venv"
    if not importlib.util.find_spec("ensurepip") and not debian(package):
        remedy = f"install its venv module (Debian: sudo apt-get install {package})"
        sys.exit(f"{sys.executable} cannot make virtual environments: {remedy}")
    print(f"Making {folder.name} with Python {sys.version.split()[0]}", flush=True)
    venv.EnvBuilder(clear=True, with_pip=True, symlinks=os.name != "nt").create(folder)
    pip = (folder / SCRIPTS / "python", "-m", "pip", "install", "-qq", "--disable-pip-version-check")
    run(*pip, "--require-hashes", "--only-binary=:all:", "-r", "locks/uv.txt")


def install(group):
    """Bring the environment of a group to at least that group."""
    folder = ROOT / (".venv-bench" if group == APART else ".venv")
    stamp, python = folder / "installed.json", folder / SCRIPTS / "python"
    locks = [path for path in ROOT.glob("locks/*.txt") if path.stem == "uv" or (path.stem == APART) == (group == APART)]
    wanted = {
        "python": list(sys.version_info[:2]),
        "locks": digest(*locks),
        "project": digest(ROOT / "pyproject.toml"),
    }
    have = json.loads(stamp.read_text()) if stamp.exists() and python.exists() else {}
    if any(have.get(key) != wanted[key] for key in ("python", "locks")):
        stamp.unlink(missing_ok=True)
        create(folder)
        have = {}
    installed = have.get("groups", [])
    uv = (python, "-m", "uv", "pip", "install", "--quiet", "--python", python)
    never = {"UV_PYTHON_DOWNLOADS": "never"}
    if group not in installed:
        print(f"Installing the packages of locks/{group}.txt", flush=True)
        # Of what a peer needs, fire is published as source alone.
        binary = [] if group == APART else ["--only-binary=:all:"]
        run(*uv, "--require-hashes", *binary, "-r", f"locks/{group}.txt", **never)
        installed = [APART] if group == APART else list(GROUPS[: GROUPS.index(group) + 1])
    if group != APART and have.get("project") != wanted["project"]:
        run(*uv, "--no-deps", "--no-build-isolation", "--editable", ".", **never)
    stamp.write_text(json.dumps(wanted | {"groups": installed}))


def main():
    group = sys.argv[1] if len(sys.argv) == 2 else ""
    if group not in (*GROUPS, APART):
        sys.exit(f"usage: python tools/env.py {'|'.join((*GROUPS, APART))}")
    if not OLDEST <= sys.version_info[:2] < BEYOND:
        admitted = f"3.{OLDEST[1]} to 3.{BEYOND[1] - 1}"
        sys.exit(f"Python {sys.version.split()[0]} cannot be used: name one of {admitted} with make PYTHON=/path")
    if group == APART and sys.version_info[:2] != OLDEST:
        sys.exit(f"The peers' packages are built for Python 3.{OLDEST[1]}: name one with make bench PYTHON=/path")
    try:
        install(group)
        if group == "test" and not chromium() and not debian("chromium"):
            remedy = "install it (Debian: sudo apt-get install chromium) or name it with CHROMIUM=/path"
            sys.exit(f"The browser tests need Chromium: {remedy}")
    except subprocess.CalledProcessError as error:
        sys.exit(f"{' '.join(error.cmd[:6])} ... failed with exit status {error.returncode}; its own words are above")


if __name__ == "__main__":
    main()
