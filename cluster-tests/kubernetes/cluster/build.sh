#!/usr/bin/env bash
# Compiles what a Kubernetes cluster consists of, from published Go modules, and installs Debian's packages for the
# rest; does what is missing, so that a second call takes seconds. `cluster.sh build` and `cluster.sh up` call it.
# The first time takes some 25 minutes on two cores; the programs take 0.6 GB, and Go's own caches 6 GB.
set -euo pipefail
# shellcheck source=common.sh source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# HELM is the version of helm/check.sh.
KUBERNETES=1.34.4 COREDNS=1.13.1 HELM=3.22.0
PACKAGES=(
  busybox-static conntrack containerd containernetworking-plugins ethtool iproute2 iptables openssl runc socat tini
)
# The programs need no C library. The modules below are made here, so that Go may complete them, and belong to no
# workspace. Go does not fetch another release of itself.
export CGO_ENABLED=0 GOFLAGS=-mod=mod GOWORK=off GOTOOLCHAIN=local

install_packages() {
  local package missing=()
  for package in "${PACKAGES[@]}"; do
    [[ $(dpkg-query -W -f '${Status}' "$package" 2>/dev/null) == "install ok installed" ]] || missing+=("$package")
  done
  [ ${#missing[@]} != 0 ] || return 0
  echo "installing ${missing[*]}"
  apt-get update -q
  DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
}

# module NAME VERSION: makes the folder of a Go module of ours, by the function NAME_module, unless it is there.
module() {
  local folder=$cache/src/$1
  [ "$(cat "$folder/version" 2>/dev/null)" != "$2" ] || return 0
  rm -rf "$folder"
  mkdir -p "$folder"
  (cd "$folder" && "$1_module")
  echo "$2" >"$folder/version"
}

# Requires the module k8s.io/kubernetes, of which all programs of Kubernetes are packages.
kubernetes_module() {
  local upstream
  printf 'module fetch\n\ngo 1.24\n' >go.mod
  upstream=$(go mod download -json "k8s.io/kubernetes@v$KUBERNETES" | sed -n 's/^\s*"GoMod": "\(.*\)",\?$/\1/p')
  python3 "$here/kubernetes_module.py" "$upstream" "$KUBERNETES" >go.mod.made
  mv go.mod.made go.mod
}

# CoreDNS with the few plugins that the DNS of a cluster needs, on the client library of the same Kubernetes.
coredns_module() {
  local library
  cp "$here/coredns/main.go" .
  printf 'module coredns-build\n\ngo 1.24.0\n\nrequire github.com/coredns/coredns v%s\n' "$COREDNS" >go.mod
  for library in api apimachinery client-go; do
    go mod edit -replace "k8s.io/$library=k8s.io/$library@v0.${KUBERNETES#1.}"
  done
}

pause_module() {
  cp "$here/pause/main.go" .
  printf 'module pause\n\ngo 1.24\n' >go.mod
}

# once NAME VERSION COMMAND…: runs the command, which makes the program of that name, unless it has made this version.
once() {
  local program=$1 version=$2 begun=$SECONDS stamp=$cache/versions/$1
  shift 2
  if [ -x "$bin/$program" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$version" ]; then return; fi
  echo "building $program $version"
  "$@" || fail "$program $version was not built: Go's errors are above"
  echo "$version" >"$stamp"
  echo "built $program $version in $((SECONDS - begun)) s"
}

# compile NAME MODULE PACKAGE [LDFLAGS]: a program from a package that the module contains or requires.
compile() {
  (cd "$cache/src/$2" && go build -trimpath -ldflags "-s -w ${4:-}" -o "$bin/$1" "$3")
}

# What the programs of Kubernetes say that they are. Without it they take themselves for version 0.
kubernetes_version() {
  local package minor
  minor=$(cut -d. -f2 <<<"$KUBERNETES")
  for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    printf -- '-X %s.gitVersion=v%s -X %s.gitMajor=1 -X %s.gitMinor=%s ' \
      $package "$KUBERNETES" $package $package "$minor"
  done
}

build_helm() {
  GOFLAGS='' GOBIN=$bin go install -trimpath -ldflags "-s -w -X helm.sh/helm/v3/internal/version.version=v$HELM" \
    "helm.sh/helm/v3/cmd/helm@v$HELM"
}

install_packages
command -v go >/dev/null || fail "building Kubernetes needs Go 1.24 or newer: see https://go.dev/dl"
mkdir -p "$bin" "$cache/versions"
module pause 1
module kubernetes "$KUBERNETES"
module coredns "$COREDNS on $KUBERNETES"
once pause 1 compile pause pause .
once etcd "of $KUBERNETES" compile etcd kubernetes go.etcd.io/etcd/server/v3
for program in kubectl kube-scheduler kube-proxy kubelet kube-controller-manager kube-apiserver; do
  once $program "$KUBERNETES" compile $program kubernetes "k8s.io/kubernetes/cmd/$program" "$(kubernetes_version)"
done
once coredns "$COREDNS on $KUBERNETES" compile coredns coredns .
once helm "$HELM" build_helm
echo "all programs are built in $bin"
