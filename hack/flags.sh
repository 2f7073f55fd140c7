# Sourced by whatever compiles without the race detector: builds, go vet, the linter. Go's build cache distinguishes
# builds by these settings, so with the same ones a package is compiled once for all of them, and for the control plane.
export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -trimpath"
