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

// Package catenatest starts a Kubernetes API with Catena for the tests of programs that use Catena: etcd, a
// kube-apiserver, Catena's CRDs, admission policies, RBAC, FlowSchemas and aggregated API, and the operator. It needs no cluster and no
// containers, only the binaries that envtest uses:
//
//	export KUBEBUILDER_ASSETS=$(setup-envtest use --print path)
//
// Main is all that a test suite needs. Start and Environment.Stop are for programs, and for suites that start something
// else between the two.
//
// Everything listens on free ports of the loopback interface. If the test process panics or is killed, its child
// processes are ended and its temporary directory is removed (on systems without /proc, etcd and kube-apiserver
// survive a kill).
//
// # The operator
//
// By default, the operator runs in the test process, so that nothing has to be built. One process can run one operator at a
// time, because the metrics of controller-runtime are global; a second one must be a process of its own, as
// OperatorOptions.Binary makes it. An operator that has been stopped can be followed by another one.
//
// # Garbage collection
//
// Garbage collection, the deletion of namespaces, and the ClusterRoles view, edit and admin are the work of
// kube-controller-manager, which setup-envtest does not install. If the binary is there, Start runs it;
// Environment.GarbageCollector reports whether it does. Without it, Delete with DeleteOptions.Cascade leaves SnapshotChunks
// behind, Delete without it waits for 30 s and returns an error, a deleted namespace stays in phase Terminating, and a test
// that needs a gateway's rights binds the ClusterRoles catena-edit and catena-reader rather
// than edit.
package catenatest
