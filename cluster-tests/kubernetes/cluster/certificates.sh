# The certificates by which the parts of a cluster know each other, and the files in which clients of the API find them.
# To be read with `source`, after common.sh.
# shellcheck shell=bash disable=SC2154 # common.sh sets these

# The names and addresses under which something is reached with one of these certificates; the same for all.
HOSTS=DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc
HOSTS+=,DNS:kubernetes.default.svc.cluster.local,IP:127.0.0.1,IP:10.96.0.1,IP:$CONTROL_ADDRESS

# quiet COMMAND…: openssl says much where nothing is wrong; what it says is shown when it fails.
quiet() {
  local said
  said=$("$@" 2>&1) || { echo "$said" >&2; fail "this has failed: $*"; }
}

# The authority that signs all certificates of the cluster, and the key that signs the tokens of service accounts.
authority() {
  local pki=$run/pki
  quiet openssl ecparam -name prime256v1 -genkey -noout -out "$pki/ca.key"
  quiet openssl req -x509 -new -key "$pki/ca.key" -out "$pki/ca.crt" -days 365 -subj "/CN=$name"
  quiet openssl genrsa -out "$pki/sa.key" 2048
}

# certificate NAME SUBJECT: a certificate, its key, and a kubeconfig with both for use inside the cluster's network.
# The subject is what the API server knows the holder by: CN is the user, O its group.
certificate() {
  local base=$run/pki/$1
  quiet openssl ecparam -name prime256v1 -genkey -noout -out "$base.key"
  quiet openssl req -new -key "$base.key" -subj "$2" -out "$base.csr"
  echo "subjectAltName=$HOSTS" >"$base.ext"
  quiet openssl x509 -req -in "$base.csr" -CA "$run/pki/ca.crt" -CAkey "$run/pki/ca.key" -CAcreateserial \
    -days 365 -extfile "$base.ext" -out "$base.crt"
  kubeconfig "$1" "https://$CONTROL_ADDRESS:6443" "$base.conf"
}

# kubeconfig NAME SERVER FILE: how a client with the certificate of that name reaches the API server.
kubeconfig() {
  local authority certificate key
  authority=$(base64 -w0 "$run/pki/ca.crt")
  certificate=$(base64 -w0 "$run/pki/$1.crt")
  key=$(base64 -w0 "$run/pki/$1.key")
  (umask 077 && cat >"$3") <<YAML
apiVersion: v1
kind: Config
clusters: [{name: $name, cluster: {server: "$2", certificate-authority-data: $authority}}]
users: [{name: $1, user: {client-certificate-data: $certificate, client-key-data: $key}}]
contexts: [{name: $name, context: {cluster: $name, user: $1}}]
current-context: $name
YAML
}

# certificates N: all that a cluster of N nodes needs.
certificates() {
  local node
  authority
  certificate api /CN=kube-apiserver
  certificate admin /O=system:masters/CN=admin
  certificate controller-manager /CN=system:kube-controller-manager
  certificate scheduler /CN=system:kube-scheduler
  certificate proxy /CN=system:kube-proxy
  certificate coredns /CN=coredns
  for node in $(seq "$1"); do certificate "node$node" "/O=system:nodes/CN=system:node:node$node"; done
}
