#!/usr/bin/env bash
# Builds the images of the operator and of the gateway, and an SBOM beside each, into dist:
#
#	hack/image.sh REGISTRY OS/ARCHITECTURE...
#
# Two builds of a commit with one version of Go give the same files, byte for byte.
set -euo pipefail
cd "$(dirname "$0")/.."
export INLINE=1
source hack/flags.sh
source hack/version.sh
registry=$1 platforms=("${@:2}")
if [[ -z $VERSION || -z $COMMIT || -z $SOURCE_DATE_EPOCH ]]; then
	echo "image: this is no git repository: set VERSION, COMMIT and SOURCE_DATE_EPOCH" >&2
	exit 1
fi

image() { # NAME PROGRAM DESCRIPTION
	local programs=("${platforms[@]/#/$PWD/bin/}")
	(cd dist && ../bin/image -image="$registry/$1:$VERSION" -description="$3" -commit="$COMMIT" -created="$SOURCE_DATE_EPOCH" \
		"${programs[@]/%//$2}")
}

hack/build.sh "${platforms[@]}"
(cd hack/image && go build -o ../../bin/image .)
echo "Writing into dist"
mkdir -p dist
image catena catena "Catena's operator: conversations of the OpenAI Responses API as Kubernetes resources"
image catena-gateway gateway "Catena's gateway: the OpenAI Responses API with state, in front of an engine that keeps none"
(cd dist && sha256sum catena.tar catena.cdx.json catena-gateway.tar catena-gateway.cdx.json)
