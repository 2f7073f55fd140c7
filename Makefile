# Everything is built from Go modules: Go and make are all that is needed, and for the tests a C compiler (for the race
# detector) and npm (for OpenAI's client for JavaScript and its Node.js).

SHELL := /usr/bin/env bash -o pipefail
.DEFAULT_GOAL := help

TOOL := go tool -modfile=hack/tools.mod
HEADER := hack/boilerplate.go.txt

# A control plane of the user's own is used as it is.
ifeq ($(KUBEBUILDER_ASSETS),)
export KUBEBUILDER_ASSETS := $(CURDIR)/bin/k8s
CONTROL_PLANE := control-plane
else
export KUBEBUILDER_ASSETS := $(abspath $(KUBEBUILDER_ASSETS))
endif

# Suites run programs that they build, of which Go's cache of results knows nothing: hence -count=1.
# Packages with a control plane mostly wait for it: three at a time keep two cores busy.
TEST_PARALLEL ?= 3
TEST_TIMEOUT ?= 20m
BENCH ?= .
BENCH_ARGS ?=

##@ Use

.PHONY: help
help: ## Show this help.
	@awk 'BEGIN {FS = ":.*## "; printf "make TARGET\n"} \
		/^##@/ {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: run
run: ## Start a Kubernetes API with Catena and sample conversations; Ctrl-C stops it.
	@hack/build.sh $(CONTROL_PLANE) catena run
	@exec bin/run

.PHONY: run-gateway
run-gateway: ## The same, with the gateway on 127.0.0.1:8090, in front of UPSTREAM or of a scripted engine.
	@hack/build.sh $(CONTROL_PLANE) catena gateway run
	@exec bin/run --gateway --upstream='$(UPSTREAM)'

.PHONY: clean-run
clean-run: ## Remove what `make run` and `make run-gateway` keep between runs (.run/).
	rm -rf .run

##@ Develop

.PHONY: build
build: ## Build the programs of cmd/ into bin.
	@hack/build.sh catena gateway replay

.PHONY: test
test: verify lint $(CONTROL_PLANE) ## Prove everything: generated files, lint, and all suites, run with the race detector.
	go test -race -vet=off -count=1 -p=$(TEST_PARALLEL) -timeout=$(TEST_TIMEOUT) ./... # lint has vetted everything

.PHONY: bench
bench: $(CONTROL_PLANE) ## Measure against a real control plane, each figure beside its comparison (BENCH=regexp, BENCH_ARGS=flags).
	go test -run='^$$' -bench='$(BENCH)' -benchmem -timeout=60m ./internal/...
	go run ./test/bench -run='$(BENCH)' $(BENCH_ARGS)

.PHONY: generate
generate: ## Generate deep copies, apply configurations, the CRD and OpenAPI definitions.
	rm -rf bin/crd api/v1alpha1/applyconfiguration
	$(TOOL) controller-gen paths=./api/... \
		object:headerFile=$(HEADER) applyconfiguration:headerFile=$(HEADER) crd output:crd:dir=bin/crd
	$(TOOL) kustomize build --load-restrictor=LoadRestrictionsNone hack/crd \
		-o config/crd/bases/sessions.catena.dev_responsesessions.yaml
	cp bin/crd/sessions.catena.dev_snapshotchunks.yaml config/crd/bases/
	$(TOOL) openapi-gen --go-header-file=$(HEADER) --report-filename=/dev/null \
		--output-dir=api/resolve/openapi --output-pkg=github.com/catena-dev/catena/api/resolve/openapi \
		--output-file=zz_generated.openapi.go --output-model-name-file=zz_generated.model_name.go \
		--readonly-pkg=k8s.io/apimachinery/pkg/apis/meta/v1 --readonly-pkg=k8s.io/apimachinery/pkg/runtime \
		--readonly-pkg=k8s.io/apimachinery/pkg/version \
		./api/resolve/v1alpha1 k8s.io/apimachinery/pkg/apis/meta/v1 k8s.io/apimachinery/pkg/runtime k8s.io/apimachinery/pkg/version

.PHONY: verify
verify: ## Check that generated files, go.mod, formatting and licence headers are as they should be.
	hack/verify.sh

.PHONY: lint
lint: ## Run golangci-lint.
	. hack/flags.sh && $(TOOL) golangci-lint run

.PHONY: control-plane
control-plane: ## Build etcd, kube-apiserver, kube-controller-manager (and kubectl if none is installed) into bin/k8s.
	@hack/build.sh control-plane
