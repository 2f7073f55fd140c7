#!/usr/bin/env bash
# Installs what is in dist on the cluster of KUBECONFIG, tests it, and removes it:
#
#	hack/test-cluster.sh REGISTRY LOAD [ARGUMENTS of go test...]
#
# LOAD is a command that gives a tarball of an image to the nodes, such as `kind load image-archive`.
set -euo pipefail
cd "$(dirname "$0")/.."
export INLINE=1
source hack/flags.sh
source hack/version.sh
registry=$1 load=$2
go build -buildvcs=false -ldflags="-s -w" -o bin/agent ./test/cluster/agent
(cd dist && ../bin/image -image="$registry/catena-test-agent:$VERSION" -description="The engine and the client of test/cluster" \
	-commit="$COMMIT" -created="$SOURCE_DATE_EPOCH" ../bin/agent)
(cd test/manifests && go build -o ../../bin/helm helm.sh/helm/v4/cmd/helm)
for name in catena catena-gateway catena-test-agent; do
	$load "dist/$name.tar"
done
if [[ -d bin/previous/dist ]]; then
	for name in catena catena-gateway; do
		$load "bin/previous/dist/$name.tar"
	done
fi
PATH=$PWD/bin:$PATH go test -count=1 -v -timeout=40m ./test/cluster -args -cluster -registry="$registry" -version="$VERSION" "${@:3}"
