#!/usr/bin/env python3
"""Makes a docker archive without Docker: mkimg.py NAME ARCHIVE [--busybox] [--entry PATH] FILE:PATH...

The image has one layer: the files at their paths, the shared libraries that they need, the certificates of this
machine's authorities, /etc/passwd, /tmp and /data. --busybox adds /bin/sh and the usual tools from Debian's busybox-static, but
for wget, which crashes in it. --entry is the program that the image runs. The name has a tag, as in quorate:dev."""
import argparse
import hashlib
import io
import json
import os
import platform
import re
import subprocess
import tarfile

AUTHORITIES = "etc/ssl/certs/ca-certificates.crt"
TEXTS = {
    "etc/passwd": "root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
}
WRITABLE = {"tmp", "data"}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("archive")
    parser.add_argument("files", nargs="*", metavar="FILE:PATH")
    parser.add_argument("--busybox", action="store_true")
    parser.add_argument("--entry")
    return parser.parse_intermixed_args()


def libraries(program):
    """The shared libraries that a program loads, with the loader itself; none of a static one."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
    return re.findall(r"(/\S+) \(0x", listed)


def contents(wanted):
    """What the layer has: paths with the files to copy, and paths with the targets of links."""
    files, links = {}, {}
    for pair in wanted.files:
        source, path = pair.split(":")
        files[path.lstrip("/")] = source
        for library in libraries(source):
            files[library.lstrip("/")] = os.path.realpath(library)
    if os.path.exists("/" + AUTHORITIES):
        files[AUTHORITIES] = "/" + AUTHORITIES
    if wanted.busybox:
        files["bin/busybox"] = "/bin/busybox"
        tools = subprocess.check_output(["/bin/busybox", "--list"], text=True).split()
        links = {"bin/" + tool: "busybox" for tool in tools if tool not in ("busybox", "wget")}
    return files, links


def folders(paths):
    """All folders above these paths, and those that every user may write to."""
    found = set(WRITABLE)
    for path in paths:
        while path := os.path.dirname(path):
            found.add(path)
    return sorted(found)


def entry(path, mode, kind=tarfile.REGTYPE, size=0, target=""):
    """An entry of a tar file that belongs to root and has no time, so that the same files make the same image."""
    made = tarfile.TarInfo(path)
    made.mode, made.type, made.size, made.linkname = mode, kind, size, target
    return made


def layer(files, links):
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as tar:
        for path in folders([*files, *links, *TEXTS]):
            tar.addfile(entry(path, 0o1777 if path in WRITABLE else 0o755, tarfile.DIRTYPE))
        for path, source in sorted(files.items()):
            mode = 0o755 if os.access(source, os.X_OK) else 0o644
            with open(source, "rb") as content:
                tar.addfile(entry(path, mode, size=os.path.getsize(source)), content)
        for path, text in TEXTS.items():
            tar.addfile(entry(path, 0o644, size=len(text)), io.BytesIO(text.encode()))
        for path, target in sorted(links.items()):
            tar.addfile(entry(path, 0o777, tarfile.SYMTYPE, target=target))
    return written.getvalue()


def configuration(layer_bytes, program):
    """The document that describes the image to those that run it."""
    return {
        "architecture": {"aarch64": "arm64"}.get(platform.machine(), "amd64"),
        "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer_bytes).hexdigest()]},
        "config": {"Entrypoint": [program] if program else None, "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"]},
    }


def main():
    wanted = arguments()
    layer_bytes = layer(*contents(wanted))
    manifest = [{"Config": "config.json", "RepoTags": [wanted.name], "Layers": ["layer.tar"]}]
    parts = {
        "config.json": json.dumps(configuration(layer_bytes, wanted.entry)).encode(),
        "layer.tar": layer_bytes,
        "manifest.json": json.dumps(manifest).encode(),
    }
    with tarfile.open(wanted.archive, "w") as tar:
        for path, content in parts.items():
            tar.addfile(entry(path, 0o644, size=len(content)), io.BytesIO(content))


main()
