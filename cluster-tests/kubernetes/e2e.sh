#!/usr/bin/env bash
# The chart on a real Kubernetes of three nodes on this machine: install, test, load, rolling upgrade, roll-back, lost
# and full volumes, pods and Kubernetes nodes, a lack of memory, scaling, uninstall; and an installation of one node.
# `make k8s-e2e` calls it. Every step prints how long it took; the first failure ends the run.
#   QUORATE_BIN      the binary that the pods run
#   CHAOS            the binary of `chaos`, which loads the release and checks it
#   CLUSTER          another script that makes the cluster than cluster.sh beside this one
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top=$here/../..
: "${QUORATE_BIN:?}" "${CHAOS:?}"
CLUSTER=${CLUSTER:-$here/cluster.sh}
[ -x "$CLUSTER" ] || { echo "no script that makes a cluster: $CLUSTER (CLUSTER names it)" >&2; exit 1; }
export QUORATE_K8S_NAME=${QUORATE_K8S_NAME:-quorate-e2e}
SEED=${SEED:-$(date +%s)}

work=$(mktemp -d)
cleanup() {
  local code=$?
  [ -z "${load:-}" ] || kill "$load" 2>/dev/null || true
  [ -z "${hog:-}" ] || kill -9 "$hog" 2>/dev/null || true
  "$CLUSTER" down || true
  [ -z "${device:-}" ] || losetup -d "$device" || true
  if [ $code = 0 ]; then rm -rf "$work"; else echo "what was recorded: $work" >&2; fi
}
trap cleanup EXIT

step=$SECONDS
ok() { printf '%4d s  ok  %s\n' $((SECONDS - step)) "$*"; step=$SECONDS; }
fail() {
  echo "FAILED: $*" >&2
  kubectl get pods,pvc,events -o wide >&2 || true
  for pod in 1 2 3; do kubectl logs "q-quorate-$pod" --tail 20 >&2 || true; done
  exit 1
}
within() { local until=$((SECONDS + $1)); shift; until "$@" >/dev/null 2>&1; do [ $SECONDS -lt $until ] || fail "not within the time: $*"; sleep 0.5; done; }
ctl() { kubectl exec "q-quorate-$1" -- quorate ctl "${@:2}"; }
rolled() { kubectl rollout status statefulset/q-quorate --timeout 300s >/dev/null || fail "rollout"; }
running() { ctl "$1" cluster_status --formatter json | python3 -c 'import json,sys; print(len(json.load(sys.stdin)["running_nodes"]))'; }
running_are() { [ "$(running "$1")" = "$2" ]; }
node_of() { kubectl get pod "q-quorate-$1" -o jsonpath='{.spec.nodeName}' | tr -dc 0-9; }
uris() {
  local password node all=
  password=$(kubectl get secret q-quorate-definitions -o jsonpath='{.data.password}' | base64 -d)
  for node in 1 2 3; do all="$all,amqp://admin:$password@q-quorate-$node.q-quorate-nodes.default.svc.cluster.local:5672/%2f"; done
  echo "${all#,}"
}
# Loads the release in the background for so many seconds: load SECONDS [OPTION…].
load() {
  "$CLUSTER" exec env CARGO_MANIFEST_DIR="$top/cluster-tests" "$CHAOS" --against "$(uris)" --duration "$1s" --seed "$SEED" \
    --output "$work/chaos-$SEED" "${@:2}" >"$work/load" 2>&1 &
  load=$!
  SEED=$((SEED + 1))
}
# Waits for the end of the load, which checks that nothing was lost, doubled or out of order. The arguments are kinds of
# violations that do not count.
loaded() {
  local kind kinds excused=true
  if ! wait "$load"; then
    kinds=$(grep -oE '^seed [0-9]+: [0-9]+ times [A-Za-z]+' "$work/load" | awk '{print $NF}' | sort -u | tr '\n' ' ' || true)
    [ -n "$kinds" ] || excused=false
    for kind in $kinds; do [[ " $* " == *" $kind "* ]] || excused=false; done
    $excused || { grep -v ' confirms/s' "$work/load" | tail -40 >&2; fail "the load found violations: $kinds"; }
  fi
  load=
  grep -m1 -o 'seed.* confirmed' "$work/load" || true
}

"$CLUSTER" build >"$work/build" 2>&1 || { tail "$work/build" >&2; exit 1; }
"$CLUSTER" up 3 >/dev/null
eval "$("$CLUSTER" env)"
strip --strip-debug -o "$work/quorate" "$QUORATE_BIN"
"$CLUSTER" image quorate:e2e "$work/quorate" >/dev/null
ok "a cluster of three nodes, with the image ($(du -m "$work/quorate" | cut -f1) MiB)"

install=(--set image.tag=e2e --set resources.requests.cpu=100m --set resources.requests.memory=512Mi --set resources.limits.memory=1Gi --set minReadySeconds=5)
helm install q "$top/helm/quorate" "${install[@]}" --wait --timeout 180s >/dev/null || fail "helm install"
ok "helm install: three nodes are ready"
[ "$(kubectl get pods -l app.kubernetes.io/instance=q -o jsonpath='{range .items[*]}{.spec.nodeName}{"\n"}{end}' | sort -u | wc -l)" = 3 ] || fail "the pods are not spread over the nodes"
running_are 1 3 || fail "not three running nodes"
kubectl exec q-quorate-1 -- quorate ctl ping >/dev/null || fail "ping"
ok "each Kubernetes node has one of them; the cluster has three running nodes"
helm test q >/dev/null || fail "helm test"
ok "helm test"

load 60
sleep 10
helm upgrade q "$top/helm/quorate" "${install[@]}" --set config.log_format=json --wait --timeout 300s >/dev/null || fail "helm upgrade"
rolled
loaded
ok "helm upgrade --wait: a rolling restart under load, nothing lost"
load 60
sleep 10
helm rollback q 1 --wait --timeout 300s >/dev/null || fail "helm rollback"
rolled
loaded
ok "helm rollback --wait under load, nothing lost"
# What the kubelet says of the probes, the preStop hooks and the containers since the installation.
restarts() { kubectl get pods -l app.kubernetes.io/component=node -o jsonpath='{.items[*].status.containerStatuses[*].restartCount}'; }
events() { kubectl get events --field-selector "reason=$1" -o name | wc -l; }
[ "$(restarts)" = "0 0 0" ] || fail "containers were restarted: $(restarts)"
[ "$(events FailedPreStopHook)" = 0 ] || fail "a preStop hook has failed"
[ "$(kubectl get events --field-selector reason=Killing -o json | grep -c 'failed .* probe')" = 0 ] || fail "a probe has ended a node"
ok "no preStop hook has failed, and no probe has ended a node"
! helm upgrade q "$top/helm/quorate" "${install[@]}" --set replicas=4 >/dev/null 2>&1 || fail "an unknown value was accepted"
ok "an unknown value is refused"

members() { ctl 1 cluster_status --formatter json | python3 -c 'import json,sys
status = json.load(sys.stdin)
print("%d %s" % (sum(it["state"] == "member" for it in status["members"]), any(it["moves"] for it in status["placement"])))'; }
members_are() { [ "$(members)" = "$1 False" ]; }
within 60 members_are 3
load 240
sleep 10
helm upgrade q "$top/helm/quorate" "${install[@]}" --set replicaCount=5 --wait --timeout 300s >/dev/null || fail "helm upgrade to five nodes"
within 180 members_are 5
ok "three nodes become five under load"
helm upgrade q "$top/helm/quorate" "${install[@]}" --set replicaCount=3 --wait --timeout 900s >/dev/null || fail "helm upgrade to three nodes"
within 60 members_are 3
within 150 bash -c '! kubectl get pod q-quorate-4 && ! kubectl get pod q-quorate-5'
loaded
kubectl delete pvc data-q-quorate-4 data-q-quorate-5 >/dev/null
ok "five nodes become three again under load, nothing lost"

# The process of a pod, as this machine counts processes.
process_of() {
  local process
  for process in $(pgrep -f '^/usr/local/bin/quorate server'); do
    ! tr '\0' '\n' <"/proc/$process/environ" 2>/dev/null | grep -qx "HOSTNAME=q-quorate-$1" || { echo "$process"; return; }
  done
}
load 75
target=$(process_of 2)
memory=/sys/fs/cgroup/memory$(awk -F: '$2 == "memory" {print $3}' "/proc/$target/cgroup")
[ -d "$memory" ] || memory=/sys/fs/cgroup$(awk -F: '$1 == 0 {print $3}' "/proc/$target/cgroup")
# Fills the memory that the pod may have. The kernel prefers to end the node: pods with limits have a higher score.
bash -c 'echo $$ >"$0/cgroup.procs" && exec python3 -c "
import os, time
kept = []
while os.path.exists(\"/proc/$1\"): kept.append(b\"x\" * (1 << 22)); time.sleep(0.005)"' "$memory" "$target" &
hog=$!
wait "$hog" || true
hog=
reason() { [ "$(kubectl get pod q-quorate-2 -o jsonpath='{.status.containerStatuses[0].lastState.terminated.reason}')" = OOMKilled ]; }
within 60 reason
within 90 running_are 1 3
loaded
rolled
ok "a node that was ended for lack of memory (OOMKilled) under load, nothing lost"

# The new volume is a file system of its own, which can become full. One block device for all Kubernetes nodes, since the
# pod may come back on any.
returns_empty() {
  kubectl delete pod q-quorate-3 >/dev/null
  within 120 bash -c 'kubectl logs q-quorate-3 | grep -q replace_cluster_node'
}
load 150
kubectl delete pvc data-q-quorate-3 --wait=false >/dev/null
returns_empty
volume=$(kubectl get pv "$(kubectl get pvc data-q-quorate-3 -o jsonpath='{.spec.volumeName}')" -o jsonpath='{.spec.local.path}')
# More than the default of disk_free_limit, 1 GiB, below which publishers are blocked and no snapshot is taken.
truncate -s 3G "$work/volume"
mkfs.ext4 -q "$work/volume"
device=$(losetup --find --show "$work/volume")
for node in 1 2 3; do "$CLUSTER" node $node exec mount "$device" "$volume" || fail "mount"; done
returns_empty
within 60 ctl 1 replace_cluster_node 3
within 120 running_are 1 3
within 180 members_are 3
loaded
rolled
ok "a node with a lost volume is replaced by name under load, nothing lost"

load 75
sleep 5
home=$(node_of 3)
"$CLUSTER" node "$home" exec dd if=/dev/zero "of=$volume/filler" bs=1M >/dev/null 2>&1 || true
sleep 15
"$CLUSTER" node "$home" exec rm "$volume/filler"
within 120 running_are 1 3
loaded Stuck
rolled
ok "a volume that was full for 15 s under load, nothing lost"

export RELEASE=q-quorate NAMESPACE=default
load 90 --breaker "$top/cluster-tests/faults/kubernetes"
loaded
ok "pods killed, frozen and deleted under load (chaos --against), nothing lost"
rolled

load 75
sleep 10
lost=$(node_of 2)
"$CLUSTER" node "$lost" cut
sleep 30
"$CLUSTER" node "$lost" heal
within 90 running_are 1 3
# The links of clients are cut too. They notice that only by their heartbeats (Stuck). Until the node notices it, it goes
# on delivering to them: these messages are delivered again, though no client has seen them before (FalselyRedelivered),
# and an active consumer that has lost its queue to another may see the last of them after the other's first (Together).
loaded Stuck FalselyRedelivered Together
rolled
ok "a Kubernetes node cut off for 30 s and healed under load, nothing lost"
load 75
sleep 10
drained=$(kubectl get pod q-quorate-1 -o jsonpath='{.spec.nodeName}')
kubectl drain "$drained" --ignore-daemonsets --delete-emptydir-data --timeout 120s >/dev/null 2>&1 || fail "kubectl drain"
within 120 running_are 2 3
kubectl uncordon "$drained" >/dev/null
loaded
rolled
ok "kubectl drain of a Kubernetes node under load: its pod is evicted and comes back elsewhere, nothing lost"
# It may have come back beside another one. The loss of both would be the loss of a majority.
if [ -n "$(for pod in 1 2 3; do echo "$(node_of "$pod")"; done | sort | uniq -d)" ]; then
  kubectl delete pod q-quorate-1 >/dev/null
  within 120 running_are 2 3
fi
load 75
sleep 10
# Not the one that has mounted the block device for node 3: the mount goes with it, and comes back before that node may.
lost=$(node_of 1)
[ "$lost" != "$(node_of 3)" ] || lost=$(node_of 2)
"$CLUSTER" node "$lost" stop
sleep 20
"$CLUSTER" node "$lost" start
"$CLUSTER" node "$lost" exec mount "$device" "$volume" || fail "mount"
within 120 running_are 1 3
# Its clients notice nothing either, and what was sent to them is delivered again.
loaded Stuck FalselyRedelivered Together
rolled
ok "a Kubernetes node stopped and started under load, nothing lost"

helm uninstall q --wait >/dev/null
within 150 bash -c '! kubectl get pod q-quorate-1'
[ "$(kubectl get pvc -o name | wc -l)" = 3 ] || fail "volumes are not kept"
kubectl get secret q-quorate-cluster >/dev/null || fail "the secret is not kept"
ok "helm uninstall; volumes and secrets are kept"
helm install q "$top/helm/quorate" "${install[@]}" --set replaceLostVolumes=true --wait --timeout 180s >/dev/null || fail "helm install over kept volumes"
helm test q >/dev/null || fail "helm test"
ok "installed again over the kept volumes"
volume_of() { kubectl get pvc "data-q-quorate-$1" -o jsonpath='{.spec.volumeName}'; }
former=$(volume_of 2)
is_new() { [ -n "$(volume_of 2)" ] && [ "$(volume_of 2)" != "$former" ]; }
load 90
sleep 10
kubectl delete pvc data-q-quorate-2 --wait=false >/dev/null
kubectl delete pod q-quorate-2 >/dev/null
within 90 is_new
within 120 running_are 1 3
within 120 members_are 3
loaded
rolled
ok "a node with a lost volume replaces itself under load (replaceLostVolumes), nothing lost"
helm uninstall q --wait >/dev/null
within 150 bash -c '! kubectl get pod q-quorate-1'

# TLS for clients and between nodes; a new certificate, of another authority, under load; nothing without TLS.
kubectl delete pvc --all >/dev/null
kubectl delete secret q-quorate-cluster q-quorate-definitions >/dev/null
domain=q-quorate-nodes.default.svc.cluster.local
for at in 1 2; do
  "$QUORATE_BIN" ctl generate_certificates "$work/tls$at" --host 127.0.0.1 --host localhost --host "$domain" --host "*.$domain" >/dev/null
done
cat "$work"/tls{1,2}/ca.pem >"$work/ca.pem"
certificate() {
  kubectl create secret generic certificate --from-file=tls.crt="$work/tls$1/node.pem" --from-file=tls.key="$work/tls$1/node-key.pem" \
    --from-file=ca.crt="$work/ca.pem" --dry-run=client -o yaml | kubectl apply -f - >/dev/null
}
# The authority of what a node shows to clients.
issuer() { "$CLUSTER" exec bash -c "openssl s_client -connect q-quorate-$1.$domain:$2 </dev/null 2>/dev/null | openssl x509 -noout -issuer -serial"; }
certificate 1
encrypted=("${install[@]}" --set tls.enabled=true --set tls.existingSecret=certificate --set tls.betweenNodes=true)
helm install q "$top/helm/quorate" "${encrypted[@]}" --wait --timeout 180s >/dev/null || fail "helm install with TLS"
helm test q >/dev/null || fail "helm test with TLS between nodes"
running_are 1 3 || fail "not three running nodes with TLS"
"$CLUSTER" exec curl -sS --fail --cacert "$work/ca.pem" "https://q-quorate-2.$domain:15671/health/ready" >/dev/null || fail "HTTPS"
! helm upgrade q "$top/helm/quorate" "${install[@]}" >/dev/null 2>&1 || fail "TLS between nodes was switched off while nodes run"
before=$(issuer 1 5671)
load 150
certificate 2
renewed() { [ -n "$(issuer "$1" "$2")" ] && [ "$(issuer "$1" "$2")" != "$before" ]; }
for at in 1 2 3; do within 150 renewed $at 5671; within 150 renewed $at 7672; done
loaded
[ "$(restarts)" = "0 0 0" ] || fail "a new certificate has restarted nodes"
running_are 1 3 || fail "not three running nodes with the new certificate"
ok "TLS for clients and between nodes; a new certificate under load without a restart, nothing lost"
helm upgrade q "$top/helm/quorate" "${encrypted[@]}" --set tls.only=true --wait --timeout 300s >/dev/null || fail "helm upgrade to TLS only"
rolled
helm test q >/dev/null || fail "helm test with TLS only"
! "$CLUSTER" exec curl -sS --max-time 5 "http://q-quorate-2.$domain:15672/health/ready" >/dev/null 2>&1 || fail "a port without TLS is open"
running_are 1 3 || fail "not three running nodes with TLS only"
helm uninstall q --wait >/dev/null
within 150 bash -c '! kubectl get pod q-quorate-1'
ok "TLS only, with probes over HTTPS"

# The commands of README's section, as they stand there; the image has the name that they give it.
kubectl delete pvc --all >/dev/null
kubectl delete secret q-quorate-cluster q-quorate-definitions >/dev/null
version=$(sed -n 's/^appVersion: "\{0,1\}\([^"]*\)"\{0,1\}$/\1/p' "$top/helm/quorate/Chart.yaml")
"$CLUSTER" image "registry.example.com/team/quorate:$version" "$work/quorate" >/dev/null
commands=$(awk '/^## /{here = $0 == "## Kubernetes"} /^```/{code = !code; next} here && code' "$top/README.md")
[ "$(wc -l <<<"$commands")" = 3 ] || fail "README's section does not have three commands: $commands"
(cd "$top" && bash -euxc "$commands") >"$work/readme" 2>&1 || { tail "$work/readme" >&2; fail "README's commands"; }
running_are 1 3 || fail "not three running nodes"
helm uninstall q --wait >/dev/null
ok "README's three commands"

# Kubernetes of one node, with one node of Quorate.
"$CLUSTER" down
"$CLUSTER" up 1 >/dev/null
eval "$("$CLUSTER" env)"
"$CLUSTER" image quorate:e2e "$work/quorate" >/dev/null
helm install one "$top/helm/quorate" "${install[@]}" --set replicaCount=1 --wait --timeout 120s >/dev/null || fail "helm install of one node"
helm test one >/dev/null || fail "helm test of one node"
helm upgrade one "$top/helm/quorate" "${install[@]}" --set replicaCount=1 --set config.log_format=json --wait --timeout 120s >/dev/null || fail "helm upgrade of one node"
helm test one >/dev/null || fail "helm test of the upgraded node"
helm uninstall one --wait >/dev/null
ok "one node on a Kubernetes of one: installed, tested, upgraded, uninstalled"
echo "all in $SECONDS s"
