# Only Go and make are needed, because everything is built from Go modules. The tests also need a C compiler for the race
# detector, and npm for OpenAI's JavaScript client and its Node.js.

SHELL := /usr/bin/env bash -o pipefail
.DEFAULT_GOAL := help

# Unlike go tool, go run compiles with the flags.
TOOL := . hack/flags.sh && go run -modfile=hack/tools.mod
TEST_FLAGS := INLINE=1 . hack/flags.sh
HEADER := hack/boilerplate.go.txt

# Binaries in KUBEBUILDER_ASSETS are used as they are.
ifeq ($(KUBEBUILDER_ASSETS),)
export KUBEBUILDER_ASSETS := $(CURDIR)/bin/k8s
CONTROL_PLANE := control-plane
else
export KUBEBUILDER_ASSETS := $(abspath $(KUBEBUILDER_ASSETS))
endif

# Images are named $(IMAGE_REGISTRY)/catena:VERSION and $(IMAGE_REGISTRY)/catena-gateway:VERSION.
IMAGE_REGISTRY ?= ghcr.io/catena-dev
PLATFORMS ?= linux/amd64 linux/arm64

TEST_PARALLEL ?= 3
TEST_TIMEOUT ?= 30m
FUZZTIME ?= 10s
BENCH ?= .
BENCH_ARGS ?=

# Modules of their own, whose dependencies stay out of Catena's.
MODULES := adapters/adk hack/image test/monitoring
in_modules = $(foreach module,$(MODULES),&& (cd $(module) && $1))

# Packages with a control plane mostly wait for it: three at a time keep two cores busy. Suites run programs that they
# build, which Go's test cache does not track: hence -count=1. GOGC=500 saves a quarter of the time of the kube-apiservers.
GO_TEST_ALL = GOGC=500 go test -count=1 -p=$(TEST_PARALLEL) -timeout=$(TEST_TIMEOUT) $(if $(RUN),-run='$(RUN)')
# Tests that need a control plane start it through internal/testenv, which leaves them out with -short. Where a whole suite
# shares one, nothing would remain: test-unit does not even build it.
MODULE := github.com/catena-dev/catena
packages_with = $(patsubst %/,%,$(sort $(dir $(shell grep -rlE --include='*.go' --exclude-dir=bin '$1' . | grep -v -e /bench/ -e '^./test/manifests/' $(MODULES:%=-e '^./%/')))))
WITH_CONTROL_PLANE = $(call packages_with,"$(MODULE)/internal/testenv")
SUITES = $(call packages_with,testenv\.RunSuite)
E2E = ./test/% ./hack/run

##@ Use

.PHONY: help
help: ## Show this help.
	@awk 'BEGIN {FS = ":.*## "; printf "make TARGET\n"} \
		/^##@/ {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z0-9-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

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

.PHONY: image
image: ## Build OCI images of the operator and the gateway, and an SBOM beside each, into dist (PLATFORMS=list, IMAGE_REGISTRY=prefix).
	@hack/image.sh $(IMAGE_REGISTRY) $(PLATFORMS)

.PHONY: dist
dist: ## Write the manifests and the Helm chart of this version to dist (IMAGE_REGISTRY=prefix).
	@hack/dist.sh $(IMAGE_REGISTRY)

# PKG is a list of packages and RUN a regular expression of test names. With either of them, `make test` runs only tests.
.PHONY: test
test: $(if $(PKG)$(RUN),,check lint) $(CONTROL_PLANE) ## Check generated files, lint, and run all tests with the race detector (PKG=packages, RUN=regexp).
	$(TEST_FLAGS) && export CGO_ENABLED=1 && $(GO_TEST_ALL) -race -vet=off $(or $(PKG),$(WITH_CONTROL_PLANE) ./...) \
		$(if $(PKG)$(RUN),,$(call in_modules,$(GO_TEST_ALL) -race -vet=off ./...)) # lint runs vet
	$(if $(PKG)$(RUN),,@$(MAKE) --no-print-directory test-manifests)

# The linter is built while verify waits for the network and for single-threaded tools. Lint and control-plane keep two cores busy,
# so they run one after the other.
.PHONY: check
check:
	@$(MAKE) --no-print-directory -j2 verify linter

.PHONY: test-unit
test-unit: ## Run the tests that need no control plane.
	$(TEST_FLAGS) && go test -short $(if $(RUN),-run='$(RUN)') \
		$(or $(PKG),$$(go list ./... | grep -vFx $(SUITES:./%=-e $(MODULE)/%)))

.PHONY: test-integration
test-integration: $(CONTROL_PLANE) ## Run the packages whose tests need a control plane, except the end-to-end suites.
	$(TEST_FLAGS) && $(GO_TEST_ALL) $(or $(PKG),$(filter-out $(E2E),$(WITH_CONTROL_PLANE)))

.PHONY: test-e2e
test-e2e: $(CONTROL_PLANE) ## Run the end-to-end suites.
	$(TEST_FLAGS) && $(GO_TEST_ALL) $(or $(PKG),$(filter $(E2E),$(WITH_CONTROL_PLANE)))

.PHONY: previous
previous:
	@hack/dist-previous.sh $(IMAGE_REGISTRY) $(PLATFORMS)

.PHONY: test-cluster
test-cluster: image dist previous ## Install dist on the cluster of KUBECONFIG, test it there, and remove it (LOAD='kind load image-archive').
	@hack/test-cluster.sh $(IMAGE_REGISTRY) '$(LOAD)' $(if $(RESTART_APISERVER),-restart-apiserver='$(RESTART_APISERVER)')

# Compiled like the programs, and unlike the other tests: the packages that they share are compiled already.
.PHONY: test-manifests
test-manifests: $(CONTROL_PLANE) ## Test config and the Helm chart (RUN=regexp).
	. hack/flags.sh && cd test/manifests && go test -count=1 -vet=off -timeout=$(TEST_TIMEOUT) $(if $(RUN),-run='$(RUN)') ./...

.PHONY: cover
cover: $(CONTROL_PLANE) ## Measure the coverage of all tests, by package and in total; bin/cover.out holds the profile.
	$(TEST_FLAGS) && $(GO_TEST_ALL) -coverpkg=./... -coverprofile=bin/cover.out $(or $(PKG),./...)
	@hack/coverage.sh bin/cover.out

.PHONY: fuzz
fuzz: ## Run each fuzz test for FUZZTIME.
	@hack/fuzz.sh $(FUZZTIME) $(or $(PKG),./...)

.PHONY: bench
bench: export INLINE = 1
bench: $(CONTROL_PLANE) ## Measure against a real control plane, each figure beside its comparison (BENCH=regexp, BENCH_ARGS=flags).
	. hack/flags.sh && go run ./test/bench -run='$(BENCH)' -json=bin/bench.json $(BENCH_ARGS)

.PHONY: bench-report
bench-report: ## Show the results of the last `make bench` in docs/benchmarks.md.
	. hack/flags.sh && go run ./test/bench -json=bin/bench.json -report=docs/benchmarks

.PHONY: bench-micro
bench-micro: export INLINE = 1
bench-micro: $(CONTROL_PLANE) ## Run the benchmarks of functions, and write their results to bin/bench-micro.txt (BENCH=regexp).
	mkdir -p bin
	. hack/flags.sh && go test -run='^$$' -bench='$(BENCH)' -benchmem -benchtime=0.2s -count=6 -timeout=60m ./internal/... ./store/sqlite > bin/bench-micro.txt

.PHONY: bench-compare
bench-compare: bench-micro ## Compare the benchmarks of functions with docs/benchmarks/micro.txt.
	@$(MAKE) --no-print-directory benchstat OLD=docs/benchmarks/micro.txt NEW=bin/bench-micro.txt

.PHONY: bench-hostile
bench-hostile: export INLINE = 1
bench-hostile: $(CONTROL_PLANE) ## Measure how much slower one tenant becomes while another attacks (BENCH=regexp, BENCH_ARGS='-rounds=5 -scale=5').
	. hack/flags.sh && go test -run='^$$' -bench='^Benchmark(Attacks|Start)$$/$(BENCH)' -benchtime=1x -timeout=120m ./test/hostile -args $(BENCH_ARGS)

.PHONY: chaos
chaos: $(CONTROL_PLANE) ## Make 10,000 turns while the leader, the kube-apiserver and etcd are killed, and change conversations in more orders.
	. hack/flags.sh && go test -vet=off -count=1 -run='^Test(Every|Random)Orders?$$' -timeout=60m ./store -args -deep -rapid.checks=50000
	$(TEST_FLAGS) && CGO_ENABLED=1 go test -race -vet=off -count=1 -v -run='^TestChaos$$' -timeout=60m ./test/e2e -args -chaos.full

.PHONY: benchstat
benchstat: ## Compare two saved results of `go test -bench` (OLD=file, NEW=file).
	$(TOOL) golang.org/x/perf/cmd/benchstat $(OLD) $(NEW)

.PHONY: generate
generate: ## Generate deep copies, apply configurations, CRDs, RBAC, OpenAPI definitions and the files of the Helm chart.
	rm -rf bin/crd api/v1alpha1/applyconfiguration
	$(TOOL) sigs.k8s.io/controller-tools/cmd/controller-gen paths=./api/... \
		object:headerFile=$(HEADER) applyconfiguration:headerFile=$(HEADER) crd output:crd:dir=bin/crd
	$(TOOL) sigs.k8s.io/controller-tools/cmd/controller-gen --load-build-tags=rbac paths=./controllers/... paths=./internal/operator/... \
		rbac:roleName=catena output:rbac:dir=config/rbac # the tag includes generated files, which the operator imports
	. hack/flags.sh && go run ./hack/swaggerdoc $(HEADER) api/resolve/v1alpha1/zz_generated.swagger_doc.go \
		api/resolve/v1alpha1/inputitems_types.go InputItemsOptions \
		api/resolve/v1alpha1/conversationturns_types.go ConversationTurnsOptions \
		api/resolve/v1alpha1/conversationlists_types.go ConversationListsOptions
	$(TOOL) sigs.k8s.io/kustomize/kustomize/v5 build --load-restrictor=LoadRestrictionsNone hack/crd -o bin/crd
	cd bin/crd && for crd in apiextensions*; do name=$${crd##*_} && mv $$crd sessions.catena.dev_$${name%%.*}.yaml; done
	cp bin/crd/*.yaml config/crd/bases/
	$(TOOL) k8s.io/kube-openapi/cmd/openapi-gen --go-header-file=$(HEADER) --report-filename=/dev/null \
		--output-dir=api/resolve/openapi --output-pkg=github.com/catena-dev/catena/api/resolve/openapi \
		--output-file=zz_generated.openapi.go --output-model-name-file=zz_generated.model_name.go \
		--readonly-pkg=k8s.io/apimachinery/pkg/apis/meta/v1 --readonly-pkg=k8s.io/apimachinery/pkg/runtime \
		--readonly-pkg=k8s.io/apimachinery/pkg/version \
		./api/resolve/v1alpha1 k8s.io/apimachinery/pkg/apis/meta/v1 k8s.io/apimachinery/pkg/runtime k8s.io/apimachinery/pkg/version
	hack/chart.sh

.PHONY: verify
verify: ## Check generated files, go.mod, formatting, licence headers and the size of programs.
	hack/verify.sh

.PHONY: linter
linter:
	. hack/flags.sh && go build -modfile=hack/tools.mod -o bin/ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

.PHONY: lint
lint: linter ## Run golangci-lint.
	$(TEST_FLAGS) && export GOGC=off GOMEMLIMIT=4GiB CGO_ENABLED=1 GOFLAGS="$$GOFLAGS -race" && bin/golangci-lint run \
		$(call in_modules,../../bin/golangci-lint run) # reads the packages that the tests are compiled with
	. hack/flags.sh && cd test/manifests && GOGC=off GOMEMLIMIT=4GiB ../../bin/golangci-lint run

.PHONY: control-plane
control-plane: ## Build etcd, kube-apiserver, kube-controller-manager (and kubectl if none is installed) into bin/k8s.
	@hack/build.sh control-plane
