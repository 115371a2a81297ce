"""Make `.venv` and install a dependency group into it: `python tools/env.py book` (or `lab`, or `test`).

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
VENV = ROOT / ".venv"
STAMP = VENV / "installed.json"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
GROUPS = ("book", "lab", "test")  # each holds the ones before it
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


def create():
    """A new, empty environment with pip and uv."""
    package = f"python3.{sys.version_info.minor}-venv"
    if not importlib.util.find_spec("ensurepip") and not debian(package):
        remedy = f"install its venv module (Debian: sudo apt-get install {package})"
        sys.exit(f"{sys.executable} cannot make virtual environments: {remedy}")
    print(f"Making .venv with Python {sys.version.split()[0]}", flush=True)
    venv.EnvBuilder(clear=True, with_pip=True, symlinks=os.name != "nt").create(VENV)
    pip = (BIN / "python", "-m", "pip", "install", "-qq", "--disable-pip-version-check")
    run(*pip, "--require-hashes", "--only-binary=:all:", "-r", "locks/uv.txt")


def install(group):
    """Bring `.venv` to at least the given group."""
    wanted = {
        "python": list(sys.version_info[:2]),
        "locks": digest(*ROOT.glob("locks/*.txt")),
        "project": digest(ROOT / "pyproject.toml"),
    }
    have = json.loads(STAMP.read_text()) if STAMP.exists() and (BIN / "python").exists() else {}
    if any(have.get(key) != wanted[key] for key in ("python", "locks")):
        STAMP.unlink(missing_ok=True)
        create()
        have = {}
    installed = have.get("groups", [])
    uv = (BIN / "python", "-m", "uv", "pip", "install", "--quiet", "--python", BIN / "python")
    never = {"UV_PYTHON_DOWNLOADS": "never"}
    if group not in installed:
        print(f"Installing the packages of locks/{group}.txt", flush=True)
        run(*uv, "--require-hashes", "--only-binary=:all:", "-r", f"locks/{group}.txt", **never)
        installed = list(GROUPS[: GROUPS.index(group) + 1])
    if have.get("project") != wanted["project"]:
        run(*uv, "--no-deps", "--no-build-isolation", "--editable", ".", **never)
    STAMP.write_text(json.dumps(wanted | {"groups": installed}))


def main():
    group = sys.argv[1] if len(sys.argv) == 2 else ""
    if group not in GROUPS:
        sys.exit(f"usage: python tools/env.py {'|'.join(GROUPS)}")
    if not OLDEST <= sys.version_info[:2] < BEYOND:
        admitted = f"3.{OLDEST[1]} to 3.{BEYOND[1] - 1}"
        sys.exit(f"Python {sys.version.split()[0]} cannot be used: name one of {admitted} with make PYTHON=/path")
    try:
        install(group)
        if group == "test" and not chromium() and not debian("chromium"):
            remedy = "install it (Debian: sudo apt-get install chromium) or name it with CHROMIUM=/path"
            sys.exit(f"The browser tests need Chromium: {remedy}")
    except subprocess.CalledProcessError as error:
        sys.exit(f"{' '.join(error.cmd[:6])} ... failed with exit status {error.returncode}; its own words are above")


if __name__ == "__main__":
    main()
