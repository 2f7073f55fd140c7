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
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"

	"k8s.io/client-go/rest"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/kubeclient"
)

const (
	resolveTurns = 64
	resolveSize  = 4 << 10
	savedTurns   = 16
)

// resolveExperiment reads a conversation of 64 turns of 4 KiB: as its history, turn by turn, as one object of the same size, and as a
// file. Then it reads shorter and longer conversations.
func resolveExperiment(ctx context.Context, b *bench) (err error) {
	if err := b.createNamespace(ctx, "bench"); err != nil {
		return err
	}
	for _, turns := range []int{1, savedTurns - 1, 16, resolveTurns, 256, 1024} {
		if err := b.createChain(ctx, "bench", fmt.Sprintf("n%d", turns), turns, resolveSize, knownOwner); err != nil {
			return err
		}
	}
	if err := b.env.Client.Create(ctx, turn("bench", "resp_whole", "", resolveTurns*resolveSize)); err != nil {
		return err
	}
	through, direct, err := b.clients(ctx, "bench")
	if err != nil {
		return err
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
	path := historyPath(resolveTurns)
	body, err := direct.Get().AbsPath(path).DoRaw(ctx)
	if err != nil {
		return err
	}
	port, static, stop, err := startStatic(ctx, body)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if err := b.aggregateStatic(ctx, through, port); err != nil {
		return err
	}

	resolved, straight := series{Name: "resolve"}, series{Name: "resolve"}
	turnByTurn := series{Name: "64 sequential GETs"}
	oneObject := series{Name: "one GET of one object of that size"}
	same := series{Name: "a static TLS server of the same bytes"}
	behind := series{Name: "that server behind the kube-apiserver"}
	var first series
	saved := 0
	again := series{Name: "the same again"}
	cases := []func() error{
		timed(&resolved, read(ctx, through, path)), timed(&turnByTurn, sequentialGets), timed(&oneObject, whole),
		timed(&straight, read(ctx, direct, path)), timed(&same, read(ctx, static, path)),
		timed(&behind, read(ctx, through, staticPath)),
		func() error {
			saved++
			return b.resolveSaved(ctx, through, fmt.Sprintf("resp_saved_%d", saved), &first, &again)
		},
	}
	if err := interleave(2, cases...); err != nil {
		return err
	}
	for _, s := range []*series{&resolved, &straight, &turnByTurn, &oneObject, &same, &behind, &first, &again} {
		s.Samples = nil // these rounds only warm up connections and caches
	}
	err = interleave(5*b.rounds, cases...)
	if err != nil {
		return err
	}
	const what = "resolve 64 turns of 4 KiB"
	b.compare(what+" through the kube-apiserver", "ms", resolved, turnByTurn, atMost(0.05))
	b.compare(what+" through the kube-apiserver", "ms", resolved, oneObject, atMost(0.4))
	b.compare(what+" through the kube-apiserver", "ms", resolved, behind, nil)
	b.compare(what+" directly", "ms", straight, same, atMost(1.3))
	b.compare("resolve 16 turns, the last one just saved, through the kube-apiserver", "ms", first, again, atMost(1.2))
	return b.byLength(ctx, direct)
}

// historyPath returns the path of the history of a conversation.
func historyPath(turns int) string { return inputItems(fmt.Sprintf("resp_n%d_%05d", turns, turns-1)) }

func inputItems(id string) string {
	return "/apis/resolve.catena.dev/v1alpha1/namespaces/bench/inputitems/" + id
}

// read returns a function that sends a request and reads the response.
func read(ctx context.Context, client rest.Interface, path string) func() error {
	return func() error {
		_, err := client.Get().AbsPath(path).Param("maxDepth", "10000").DoRaw(ctx)
		return err
	}
}

// resolveSaved saves a turn and resolves it twice. In a conversation, each turn is resolved only once.
func (b *bench) resolveSaved(ctx context.Context, client rest.Interface, id string, first, again *series) error {
	previous := fmt.Sprintf("resp_n%d_%05d", savedTurns-1, savedTurns-2)
	if err := b.env.Client.Create(ctx, turn("bench", id, previous, resolveSize)); err != nil {
		return err
	}
	for _, s := range []*series{first, again} {
		if err := timed(s, read(ctx, client, inputItems(id)))(); err != nil {
			return err
		}
	}
	return nil
}

// byLength measures how the cost grows with the number of turns, on the operator's Service.
func (b *bench) byLength(ctx context.Context, direct rest.Interface) error {
	lengths := []int{1, 16, resolveTurns, 256, 1024}
	took := make([]series, len(lengths))
	var cases, warmUp []func() error
	for i, turns := range lengths {
		took[i].Name = fmt.Sprintf("%d turns", turns)
		history := read(ctx, direct, historyPath(turns))
		warmUp = append(warmUp, history)
		cases = append(cases, timed(&took[i], history))
	}
	if err := interleave(2, warmUp...); err != nil {
		return err
	}
	if err := interleave(5*b.rounds, cases...); err != nil {
		return err
	}
	for i := 1; i < len(took); i++ {
		b.compare(fmt.Sprintf("resolve %s directly", took[i].Name), "ms", took[i], took[i-1], nil)
	}
	return nil
}

// clients returns clients of the kube-apiserver and of the operator's Service, as a gateway in a Pod has them, with its rights in a namespace.
func (b *bench) clients(ctx context.Context, namespace string) (through, direct rest.Interface, err error) {
	config, err := b.env.PodConfig(ctx, namespace)
	if err != nil {
		return nil, nil, err
	}
	if through, err = kubeclient.New(config); err != nil {
		return nil, nil, err
	}
	direct, err = directClient(b.operatorHost(), b.env.ResolveCAFile, config.BearerToken)
	return through, direct, err
}

// directClient returns a client with the transport that a Pod uses for the operator's Service.
func directClient(host, caFile, token string) (rest.Interface, error) {
	ca, err := os.ReadFile(caFile)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("%s has no certificate", caFile)
	}
	dial := (&net.Dialer{}).DialContext
	return kubeclient.New(&rest.Config{
		Host: host, BearerToken: token, Transport: kubeclient.NewDirectTransport(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, dial),
	})
}

// operatorHost is the address of the operator's Service.
func (b *bench) operatorHost() string { return fmt.Sprintf("https://127.0.0.1:%d", b.operator.Port) }
