#!/usr/bin/env bash
# What became of the components that were started in these namespaces: components.sh [N], in the namespaces of the
# cluster, or with N in those of a node. `cluster.sh status` calls it. A component that has ended is not started again.
set -euo pipefail
# shellcheck source=common.sh source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

for file in "$run/inner${1:+/$1}"/*; do
  # Folders are those of the nodes; an empty file says that the cluster is up.
  if [ ! -f "$file" ] || [ ! -s "$file" ]; then continue; fi
  component=${file#"$run/inner/"}
  if pid=$(alive "$file"); then
    memory_kib=$(awk '/^VmRSS/ { print $2 }' "/proc/$pid/status")
    printf '%-24s running %5d MiB\n' "$component" $((memory_kib / 1024))
  else
    printf '%-24s has ended: see %s\n' "$component" "$run/log/${component//\//-}.log"
  fi
done
