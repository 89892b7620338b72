#!/usr/bin/env bash
# Runs a command in the namespaces of a node: enter_node.sh N COMMAND…, in the namespaces of the cluster.
set -euo pipefail
# shellcheck source=common.sh source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

holder=$(alive "$run/inner/node$1") || fail "node $1 is stopped"
first=$(child_of "$holder") || fail "node $1 is stopped"
exec nsenter --target "$first" --mount --net --pid --wd="$PWD" -- "${@:2}"
