#!/usr/bin/env bash
# Builds etcd, kube-apiserver, kube-controller-manager and, where none is installed, kubectl into bin/k8s, at the
# versions that go.mod in this directory pins. It does nothing while go.sum stays as it is.
set -euo pipefail

cd "$(dirname "$0")"
out=$(cd ../.. && pwd)/bin/k8s
stamp=$out/.go.sum.cksum

binaries=(
	etcd=go.etcd.io/etcd/server/v3
	kube-apiserver=k8s.io/kubernetes/cmd/kube-apiserver
	kube-controller-manager=k8s.io/kubernetes/cmd/kube-controller-manager
)
if ! command -v kubectl >/dev/null; then
	binaries+=(kubectl=k8s.io/kubernetes/cmd/kubectl)
fi

up_to_date() {
	[[ -f $stamp && $(<"$stamp") == "$(cksum <go.sum)" ]] || return 1
	for binary in "${binaries[@]}"; do
		[[ -x $out/${binary%%=*} ]] || return 1
	done
}

# The binaries take their version from the linker: kubectl refuses a server that has none.
ldflags() {
	local version major minor
	version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
	IFS=. read -r major minor _ <<<"${version#v}"
	local flags="-s -w" package
	for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
		flags+=" -X $package.gitVersion=$version -X $package.gitMajor=$major -X $package.gitMinor=$minor"
		flags+=" -X $package.gitTreeState=clean"
	done
	echo "$flags"
}

if up_to_date; then
	exit 0
fi
mkdir -p "$out"
rm -f "$stamp"
flags=$(ldflags)
echo "Building the Kubernetes control plane into bin/k8s. The first time takes some minutes."
for i in "${!binaries[@]}"; do
	name=${binaries[i]%%=*}
	printf '  [%d/%d] %-24s ' $((i + 1)) ${#binaries[@]} "$name"
	start=$SECONDS
	CGO_ENABLED=0 go build -trimpath -ldflags="$flags" -o "$out/$name" "${binaries[i]#*=}"
	echo "$((SECONDS - start)) s"
done
cksum <go.sum >"$stamp"
