#!/usr/bin/env bash
# Writes the manifests of config/default, with the image of this version, to dist/install.yaml:
#
#	hack/dist.sh REGISTRY
set -euo pipefail
cd "$(dirname "$0")/.."
source hack/flags.sh
source hack/version.sh
mkdir -p dist
overlay=$(mktemp -d dist/overlay.XXXXXX)
trap 'rm -rf "$overlay"' EXIT
cat >"$overlay/kustomization.yaml" <<YAML
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
- ../../config/default
images:
- name: ghcr.io/catena-dev/catena
  newName: $1/catena
  newTag: $VERSION
YAML
go run -modfile=hack/tools.mod sigs.k8s.io/kustomize/kustomize/v5 build "$overlay" -o dist/install.yaml
