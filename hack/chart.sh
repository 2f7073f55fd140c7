#!/usr/bin/env bash
# Copies the manifests of config that the chart has as files, whose objects its templates complete. All others have values, and are
# templates; test/manifests compares them with config.
set -euo pipefail
cd "$(dirname "$0")/../config"
files=../charts/catena/files

copy() { # DIRECTORY FILES...
	mkdir -p "$files/$1"
	cp "${@:2}" "$files/$1"
}

rm -rf "$files"
copy crd crd/bases/*.yaml
copy admission admission/*.yaml
copy rbac rbac/*.yaml
copy certificates rbac/certificates_role.yaml
copy flowcontrol flowcontrol/*.yaml
copy operator apiservice/service.yaml manager/{disruption_budget,network_policy,resource_quota}.yaml
copy gateway components/gateway/{role,disruption_budget,network_policy}.yaml
copy cert-manager components/cert-manager/*.yaml
copy monitoring components/monitoring/{gateway.yaml,rules.yaml,dashboard.json}
copy priority-and-fairness components/priority-and-fairness/*.yaml
rm "$files"/*/kustomization.yaml "$files"/rbac/{namespace,service_account,certificates_role}.yaml
