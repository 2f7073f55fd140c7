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
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"

	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/gateway/enginetest"
	"github.com/catena-dev/catena/internal/testenv"
)

const gatewayTurns = 16

// gatewayExperiment continues a conversation of 16 turns through the gateway, with its store in the cluster: one request
// that resolves, calls the engine and saves. For comparison, it calls the engine directly, with the whole history in the
// request. The difference is the cost of Catena per turn.
func gatewayExperiment(ctx context.Context, b *bench) error {
	engine := httptest.NewServer(enginetest.Handler())
	defer engine.Close()
	pod, err := b.env.PodConfig(ctx, metav1.NamespaceDefault)
	if err != nil {
		return err
	}
	gateway, err := b.startGateway(ctx, pod, engine.URL)
	if err != nil {
		return err
	}
	input := gjson.GetBytes(conversationTurn(writeSize).Request, "input").Raw
	previous := "null"
	var history bytes.Buffer
	for range gatewayTurns {
		response, err := post(ctx, gateway.URL, fmt.Sprintf(`{"model":"scripted","previous_response_id":%s,"input":%s}`, previous, input))
		if err != nil {
			return err
		}
		previous = gjson.GetBytes(response, "id").Raw
		for _, items := range []string{input, gjson.GetBytes(response, "output").Raw} {
			history.WriteString(items[1:len(items)-1] + ",")
		}
	}
	whole := history.String() + input[1:]
	call := func(url, input, more string) func() error {
		body := fmt.Sprintf(`{"model":"scripted","input":%s,%s}`, input, more)
		return func() error {
			_, err := post(ctx, url, body)
			return err
		}
	}
	plain, err := b.plainTurn(ctx, pod, []byte(input))
	if err != nil {
		return err
	}
	before, err := usage(gateway.PID())
	if err != nil {
		return err
	}
	turns := 0
	for _, stream := range []string{"false", "true"} {
		var through, added series
		straight := series{Name: "the engine directly, with the whole history"}
		continued := call(gateway.URL, input, `"previous_response_id":`+previous+`,"stream":`+stream)
		direct := call(engine.URL, "["+whole, `"store":false,"stream":`+stream)
		if err := interleave(2, continued, direct); err != nil {
			return err
		}
		requests := series{Name: "one GET and one create of such a turn"}
		if err := interleave(5*b.rounds, timed(&through, continued), timed(&straight, direct), timed(&requests, plain)); err != nil {
			return err
		}
		turns += 2 + len(through.Samples)
		for i := range through.Samples {
			added.add(through.Samples[i] - straight.Samples[i])
		}
		what := fmt.Sprintf("the %dth turn of 4 KiB through the gateway, stream=%s", gatewayTurns+1, stream)
		b.compare(what, "ms", through, straight, nil)
		b.compare(what+", less the engine", "ms", added, requests, atMost(1.25))
	}
	after, err := usage(gateway.PID())
	if err != nil {
		return err
	}
	b.figure("CPU time of the gateway for each of these turns", "ms", nil, (after[0].cpu-before[0].cpu)/float64(turns))
	resident, err := residentBytes(gateway.PID())
	b.figure("resident memory of the gateway at the end", "MiB", nil, resident/(1<<20))
	return err
}

// startGateway starts a gateway with the credentials of a Pod. It resolves directly, as one in a Pod does, but with the HTTP/2 frames of client-go.
func (b *bench) startGateway(ctx context.Context, pod *rest.Config, upstream string) (*testenv.Gateway, error) {
	kubeconfig, err := b.env.WriteKubeconfig(pod)
	if err != nil {
		return nil, err
	}
	direct := url.Values{"resolve-host": {b.operatorHost()}, "resolve-ca-file": {b.env.ResolveCAFile}}
	return b.env.StartGateway(ctx, testenv.GatewayOptions{
		Upstream: upstream, Args: []string{"--store=" + testenv.StoreURL(metav1.NamespaceDefault, kubeconfig) + "&" + direct.Encode()},
	})
}

// plainTurn returns a function that reads the object of a turn and creates another one, as a client without Catena would in the same Pod.
// Their bodies are JSON, with the input and an output of the same size.
func (b *bench) plainTurn(ctx context.Context, pod *rest.Config, input []byte) (func() error, error) {
	const namespace, first = metav1.NamespaceDefault, "resp_plain_0"
	plain, err := client.New(pod, client.Options{Scheme: b.env.Client.Scheme()})
	if err != nil {
		return nil, err
	}
	if err := plain.Create(ctx, turn(namespace, first, "", 2*len(input))); err != nil {
		return nil, err
	}
	turns := 0
	return func() error {
		previous := &v1alpha1.ResponseSession{}
		if err := plain.Get(ctx, kubeKey(namespace, first), previous); err != nil {
			return err
		}
		turns++
		next := turn(namespace, fmt.Sprintf("resp_plain_%d", turns), first, 2*len(input))
		setOwner(next, previous.UID)
		return plain.Create(ctx, next)
	}, nil
}

// post sends a request to an engine or gateway and returns the body of the response.
func post(ctx context.Context, url, body string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/responses", bytes.NewBufferString(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("unexpected response %s: %s", response.Status, content)
	}
	return content, err
}
