/*
Copyright 2026 The Catena Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

// Package testenv starts what Catena needs around it on one machine, without containers: etcd, a kube-apiserver with
// its aggregation layer, the garbage collector of kube-controller-manager, and, where asked for, the operator as a
// process of its own. `make run`, the suites and the benchmarks all start their control plane here.
//
// Everything listens on loopback, on free ports. The binaries come from KUBEBUILDER_ASSETS or from bin/k8s of this
// repository (`make control-plane` builds them).
package testenv
