#!/usr/bin/env bash
# Gets a real Kubernetes control plane and Prometheus for the tests: from KUBEBUILDER_ASSETS or PATH where they are there,
# else built from their Go modules into ~/.cache/giveway/cluster (about 10 minutes once, 5 GB of Go caches).
#   get_binaries.sh            get what is missing
#   get_binaries.sh --where    print the folder that holds them
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
BIN=${KUBEBUILDER_ASSETS:-${XDG_CACHE_HOME:-$HOME/.cache}/giveway/cluster}
K8S=v1.36.3
NEEDED="etcd kube-apiserver kube-controller-manager kubectl prometheus"
if [ "${1:-}" = --where ]; then
  echo "$BIN"
  exit
fi

missing=()
for name in $NEEDED; do
  [ -x "$BIN/$name" ] || command -v "$name" >/dev/null || missing+=("$name")
done
[ ${#missing[@]} -gt 0 ] || exit 0
command -v go >/dev/null || {
  echo "missing: ${missing[*]}. Install Go 1.26 or newer and run this again, or set KUBEBUILDER_ASSETS" \
    "to a folder that holds them." >&2
  exit 1
}
mkdir -p "$BIN"

v=k8s.io/component-base/version
kubernetes="-s -w -X $v.gitVersion=$K8S -X $v.gitMajor=1 -X $v.gitMinor=36 -X $v.gitTreeState=clean -X $v.buildDate=2026-01-01T00:00:00Z"

build() { # name, module folder, package, go build flags...
  local name=$1 folder=$2 package=$3 start=$SECONDS
  shift 3
  echo "building $name"
  (cd "$here/go/$folder" && CGO_ENABLED=0 go build -mod=readonly -trimpath "$@" -o "$BIN/$name" "$package")
  echo "built $name in $((SECONDS - start)) s"
}

echo "building ${missing[*]} into $BIN: about 10 minutes on two cores, once"
for name in "${missing[@]}"; do
  case $name in
    etcd) build etcd etcd go.etcd.io/etcd/server/v3 -ldflags "-s -w" ;;
    kube-* | kubectl) build "$name" kubernetes "k8s.io/kubernetes/cmd/$name" -ldflags "$kubernetes" ;;
    prometheus)
      build prometheus prometheus github.com/prometheus/prometheus/cmd/prometheus \
        -tags netgo,remove_all_sd,enable_kubernetes_sd -ldflags "-s -w -X github.com/prometheus/common/version.Version=3.16.0"
      ;;
  esac
done
