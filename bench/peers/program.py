# SPDX-License-Identifier: Apache-2.0
"""Where the clattn program is; what builds it where there is none."""

import os
import shutil
import subprocess
import sys

# The repository's own way to install packages and to build: scripts/lib.sh.
BUILD = """
. scripts/lib.sh
need "${packages_run[@]}" python3-venv
need_driver
configure "$root/build/release" -DCMAKE_BUILD_TYPE=Release
build "$root/build/release" clattn-cli
"""


def find_program(given, root):
    if given:
        return os.path.abspath(given)
    for folder in ("build", "build/release"):
        path = os.path.join(root, folder, "bin", "clattn")
        if os.access(path, os.X_OK):
            return path
    return shutil.which("clattn")


def build_program(root):
    print("building clattn in build/release", file=sys.stderr)
    if subprocess.run(["bash", "-c", BUILD, "peers"], cwd=root, check=False).returncode != 0:
        raise SystemExit("peers: clattn could not be built; --clattn PATH names one")
