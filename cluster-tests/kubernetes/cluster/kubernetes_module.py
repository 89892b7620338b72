#!/usr/bin/env python3
"""Makes the go.mod of a module that requires k8s.io/kubernetes: kubernetes_module.py GO_MOD VERSION, to standard output.

GO_MOD is the one of k8s.io/kubernetes at VERSION (1.x.y). It replaces the libraries that are developed beside it by
folders of its own repository (`k8s.io/api => ./staging/src/k8s.io/api`), which a published module does not have. Each is
published too, as version 0.x.y: the replacements made here name that one."""
import re
import sys

upstream, version = open(sys.argv[1]).read(), sys.argv[2]
staged = sorted(set(re.findall(r"^\s*(?:replace )?(k8s\.io/\S+) => \./staging/", upstream, re.M)))
required = dict(re.findall(r"^\s*(?:require )?([a-z0-9]\S*/\S+) (v\S+)", upstream, re.M))
go = re.search(r"^go (\S+)", upstream, re.M)[1]

print("module kubernetes-build")
print(f"\ngo {go}")
# The behaviour of the Go that this version was written for, whichever compiles it.
print(f"\ngodebug default=go{'.'.join(go.split('.')[:2])}")
print(f"\nrequire k8s.io/kubernetes v{version}")
for path, at in required.items():
    if path not in staged:
        print(f"require {path} {at} // indirect")
print()
for path in staged:
    print(f"replace {path} => {path} v0.{version.removeprefix('1.')}")
