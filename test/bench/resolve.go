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

package main

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/kubeclient"
)

const (
	resolveTurns = 64
	resolveSize  = 4 << 10
)

// resolveExperiment reads a conversation of 64 turns of 4 KiB: as its history, turn by turn, and as one object of the
// same size. It then reads shorter and longer conversations to measure the cost per turn.
func resolveExperiment(ctx context.Context, b *bench) error {
	if err := b.createNamespace(ctx, "bench"); err != nil {
		return err
	}
	for _, turns := range []int{1, 16, resolveTurns, 256, 1024} {
		if err := b.createChain(ctx, "bench", fmt.Sprintf("n%d", turns), turns, resolveSize); err != nil {
			return err
		}
	}
	// In a conversation, each turn is resolved only once. So the operator has to send an access review to the
	// kube-apiserver and to read the turn.
	for i := range 5*b.rounds + 2 {
		next := turn("bench", fmt.Sprintf("resp_next_%d", i), fmt.Sprintf("resp_n%d_%05d", resolveTurns, resolveTurns-1), resolveSize)
		if err := b.env.Client.Create(ctx, next); err != nil {
			return err
		}
	}
	if err := b.env.Client.Create(ctx, turn("bench", "resp_whole", "", resolveTurns*resolveSize)); err != nil {
		return err
	}
	through, direct, err := b.clients(ctx)
	if err != nil {
		return err
	}
	history := func(client rest.Interface, turns int) func() error {
		path := fmt.Sprintf("/apis/resolve.catena.dev/v1alpha1/namespaces/bench/inputitems/resp_n%d_%05d", turns, turns-1)
		return func() error {
			_, err := client.Get().AbsPath(path).Param("maxDepth", "10000").DoRaw(ctx)
			return err
		}
	}
	get := func(id string) error {
		_, err := through.Get().Namespace("bench").Resource(kubeclient.Sessions).Name(v1alpha1.ObjectName(id)).DoRaw(ctx)
		return err
	}
	sequentialGets := func() error {
		for t := range resolveTurns {
			if err := get(fmt.Sprintf("resp_n%d_%05d", resolveTurns, t)); err != nil {
				return err
			}
		}
		return nil
	}
	whole := func() error { return get("resp_whole") }
	requests := 0
	next := func() error {
		path := fmt.Sprintf("/apis/resolve.catena.dev/v1alpha1/namespaces/bench/inputitems/resp_next_%d", requests)
		requests++
		_, err := through.Get().AbsPath(path).Param("maxDepth", "10000").DoRaw(ctx)
		return err
	}

	resolved := series{name: "resolve of 64 turns of 4 KiB, through the kube-apiserver"}
	turnByTurn := series{name: "64 sequential GETs"}
	oneObject := series{name: "one GET of one object of the same size"}
	first := series{name: "the same with one more turn, resolved for the first time"}
	straight := series{name: "the same, from the operator's Service"}
	if err := interleave(2, history(through, resolveTurns), history(direct, resolveTurns), next, sequentialGets, whole); err != nil {
		return err // these rounds only warm up connections and caches
	}
	err = interleave(5*b.rounds, timed(&resolved, history(through, resolveTurns)), timed(&first, next), timed(&turnByTurn, sequentialGets),
		timed(&oneObject, whole), timed(&straight, history(direct, resolveTurns)))
	if err != nil {
		return err
	}
	b.comparisons = append(b.comparisons,
		&comparison{name: "resolve, turn by turn", unit: "ms", ours: resolved, theirs: turnByTurn, target: 20},
		&comparison{name: "resolve, one object", unit: "ms", ours: resolved, theirs: oneObject, target: 1},
		&comparison{name: "resolve, a new turn", unit: "ms", ours: first, theirs: turnByTurn},
		&comparison{name: "resolve, directly", unit: "ms", ours: straight, theirs: resolved},
	)
	return b.byLength(history, direct)
}

// byLength measures how the cost grows with the number of turns, on the operator's Service.
func (b *bench) byLength(history func(rest.Interface, int) func() error, direct rest.Interface) error {
	var last series
	for i, turns := range []int{1, 16, resolveTurns, 256, 1024} {
		s := series{name: fmt.Sprintf("%d turns", turns)}
		read := history(direct, turns)
		if err := interleave(2, read); err != nil {
			return err
		}
		if err := interleave(5*b.rounds, timed(&s, read)); err != nil {
			return err
		}
		if i > 0 {
			b.comparisons = append(b.comparisons, &comparison{name: "resolve by length, directly", unit: "ms", ours: s, theirs: last})
		}
		last = s
	}
	return nil
}

// clients returns clients of the kube-apiserver and of the operator's Service, for a user with the reader role: for an
// administrator, the operator would not need the kube-apiserver to authorize requests.
func (b *bench) clients(ctx context.Context) (through, direct rest.Interface, err error) {
	err = b.env.Client.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "bench-reader"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "catena-reader"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "bench"}},
	})
	if err != nil {
		return nil, nil, err
	}
	config, err := b.env.ConfigFor("bench")
	if err != nil {
		return nil, nil, err
	}
	if through, err = kubeclient.New(config); err != nil {
		return nil, nil, err
	}
	config = rest.CopyConfig(config)
	config.Host = fmt.Sprintf("https://127.0.0.1:%d", b.operator.Port)
	config.CAData, config.CAFile = nil, b.env.ResolveCAFile
	direct, err = kubeclient.New(config)
	return through, direct, err
}
