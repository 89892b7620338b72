# What the parts of cluster.sh share: where things are, and processes that are remembered. To be read with `source`.
# shellcheck shell=bash disable=SC2034 # what is set here is used where this is read

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
name=${QUORATE_K8S_NAME:-dev}
cache=${QUORATE_K8S_DIR:-${QUORATE_CACHE_DIR:-$HOME/.cache/quorate}/k8s}
run=${QUORATE_K8S_RUN:-${TMPDIR:-/tmp}/quorate-k8s-$name}
bin=$cache/bin
# The group below which the kernel counts what the cluster uses, in each of its hierarchies.
cgroup=/quorate-k8s-$name
hierarchies() {
  if [ -e /sys/fs/cgroup/cgroup.controllers ]; then echo /sys/fs/cgroup; else dirname /sys/fs/cgroup/*/cgroup.procs; fi
}
export QUORATE_K8S_NAME=$name QUORATE_K8S_DIR=$cache QUORATE_K8S_RUN=$run
export PATH=$bin:/usr/local/sbin:/usr/sbin:/sbin:$PATH

# Addresses. Node N has 10.99.0.(10 + N), its pods 10.244.N.0/24; system.yaml has some of them too.
CONTROL_ADDRESS=10.99.0.1
DNS_ADDRESS=10.96.0.10
SERVICES=10.96.0.0/16
PODS=10.244.0.0/16
node_address() { echo "10.99.0.$((10 + $1))"; }
pods_of() { echo "10.244.$1.0/24"; }

NODES_MAX=9
nodes() { cat "$run/nodes"; }

fail() { echo "cluster.sh: $*" >&2; exit 1; }

# poll SECONDS COMMAND…: repeats the command until it succeeds, for so long at most.
poll() {
  local until=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $until ] || { echo "not within the time: $*" >&2; return 1; }
    sleep 0.2
  done
}

# When a process began, in ticks of the kernel. A number alone may by now be that of another process.
started() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }

# remember PID FILE, and alive FILE: the latter prints the number if that very process still runs.
remember() { echo "$1 $(started "$1")" >"$2"; }
alive() {
  local pid begun
  read -r pid begun 2>/dev/null <"$1" || return 1
  [ -n "$begun" ] && [ "$(started "$pid")" = "$begun" ] && echo "$pid"
}

# The only child of a process, as in: the first process in a namespace, whose parent has made the namespace.
child_of() {
  local child
  child=$(cat "/proc/$1/task/$1/children" 2>/dev/null) && [ -n "$child" ] && echo "${child% }"
}

# component NAME COMMAND…: starts a part of the cluster in the background, with a log of its own.
component() {
  local component=$1
  shift
  "$@" >>"$run/log/${component//\//-}.log" 2>&1 </dev/null &
  remember $! "$run/inner/$component"
}
