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

package hostile_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/coder/websocket"
	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/types"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/gateway/enginetest"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/testenv"
)

// gatewayAttacks go through a gateway, which both tenants use.
var gatewayAttacks = map[string]attack{
	"many streams": {
		gateway: true, clients: 64, prepare: manyStreams, answers: map[string]bool{"200": true, "429 overloaded": true},
	},
	"streams that continue large histories": {
		gateway: true, clients: 64, small: 64, large: 256, prepare: largeStreams, answers: map[string]bool{"200": true, "429 overloaded": true},
	},
	"large bodies of tiny members": {
		gateway: true, clients: 16, small: 1 << 20, large: 1 << 20, prepare: tinyMembers, answers: map[string]bool{"200": true, "429 overloaded": false},
	},
	"large inputs of tiny items": {
		gateway: true, clients: 16, small: 1 << 20, large: 1 << 20, prepare: tinyItems, answers: map[string]bool{"200": true, "429 overloaded": false},
	},
	"continuations of large histories": {
		gateway: true, clients: 16, small: 64, large: 256, prepare: continuations, answers: map[string]bool{"200": true, "429 overloaded": false},
	},
	"references to items of tiny members": {
		gateway: true, clients: 16, small: 50, large: 100, prepare: references, answers: map[string]bool{"200": false, "429 overloaded": true},
	},
	"items that name a large one": {
		gateway: true, clients: 16, small: 2000, large: 10_000, prepare: namedItems, answers: map[string]bool{"200": true, "429 overloaded": false},
	},
	"conversations of large metadata": {
		gateway: true, clients: 64, small: 1_400_000, large: 1_400_000, prepare: largeConversations, answers: map[string]bool{"200": true, "429 overloaded": false},
	},
	"WebSockets that remember large turns": {
		gateway: true, clients: 64, small: 1 << 20, large: 1 << 20, prepare: webSockets, answers: map[string]bool{"200": true, "429 overloaded": true},
	},
	"large answers that nobody reads": {
		gateway: true, clients: 64, small: 4 << 20, large: 4 << 20, prepare: unreadAnswers, answers: map[string]bool{"200": true, "429 overloaded": false},
	},
	"reads of large turns of tiny members": {
		gateway: true, clients: 16, small: 1 << 20, large: 1 << 20, prepare: largeReads, answers: map[string]bool{"200": true, "429 overloaded": false},
	},
	"deletions of large turns": {
		gateway: true, clients: 16, small: 1 << 18, large: 1 << 18, prepare: deletedTurns, answers: map[string]bool{"200": true, "429 overloaded": false},
	},
	"large responses": {
		gateway: true, clients: 16, small: 1 << 20, large: 1 << 20, prepare: largeResponses, answers: map[string]bool{"200": false, "429 overloaded": true},
	},
	"hanging uploads": {
		gateway: true, clients: 192, prepare: hangingUploads, answers: map[string]bool{"200": true, "429 overloaded": true},
	},
}

// The limits of the gateway in attacks, and the additional memory that docs/gateway.md allows for the program. The attacker
// gets at most half: its bodies of 1 MiB take 12 MiB each, and those whose response repeats them 22 MiB. Of the other half,
// the victim can begin requests of 32 MiB, and its eight at once take 1.9 MiB each.
const (
	gatewayBytes        = 192 << 20
	gatewayProgramBytes = 128 << 20
	gatewayRequests     = 256
	gatewayStreams      = 32
)

// gateway is a gateway whose tenants' keys are their namespaces.
type gateway struct {
	*testenv.Gateway
	client *http.Client
}

// slowModel is the model of an engine that begins a stream and does not end it.
const slowModel = "slow"

func startGateway(a *arena, tenants ...string) *gateway {
	a.Helper()
	engine := httptest.NewServer(http.HandlerFunc(slowEngine))
	a.Cleanup(engine.Close)
	var keys strings.Builder
	for _, namespace := range tenants {
		fmt.Fprintf(&keys, "- {namespace: %s, key: %s}\n", namespace, namespace)
	}
	file := filepath.Join(a.TempDir(), "tenants.yaml")
	if err := os.WriteFile(file, []byte(keys.String()), 0o600); err != nil {
		a.Fatal(err)
	}
	started, err := env.StartGateway(a.Context(), testenv.GatewayOptions{Upstream: engine.URL, Args: []string{
		"--store=" + testenv.StoreURL("default", env.Kubeconfig), "--tenants-file=" + file,
		fmt.Sprintf("--max-inflight-bytes=%d", gatewayBytes), fmt.Sprintf("--max-inflight-requests=%d", gatewayRequests),
		fmt.Sprintf("--max-inflight-streams=%d", gatewayStreams), "--max-request-bytes=8388608", "--max-response-bytes=8388608",
	}})
	if err != nil {
		a.Fatal(err)
	}
	a.Cleanup(func() {
		if err := started.Stop(); err != nil {
			a.Error(err)
		}
	})
	transport := &http.Transport{MaxIdleConnsPerHost: 256}
	a.Cleanup(transport.CloseIdleConnections)
	return &gateway{Gateway: started, client: &http.Client{Transport: transport}}
}

// through returns the gateway as a client with its own transport reaches it, whose refused requests are counted.
func (g *gateway) through(counted *refusals) *gateway {
	return &gateway{Gateway: g.Gateway, client: &http.Client{Transport: counted.count(g.client.Transport)}}
}

// slowEngine serves the scripted engine, except for slowModel.
func slowEngine(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if gjson.GetBytes(body, "model").Str == slowModel {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, `data: {"type":"response.created","response":{"id":"resp_x","status":"in_progress","output":[]}}`+"\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return
	}
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	enginetest.Handler().ServeHTTP(w, r)
}

// do sends a request with the key of a tenant.
func (g *gateway) do(ctx context.Context, key, method, path, body string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, g.URL+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+key)
	return g.client.Do(r)
}

// send sends a request and reads the answer.
func (g *gateway) send(ctx context.Context, key, method, path, body string) (answer, content string, err error) {
	response, err := g.do(ctx, key, method, path, body)
	if err != nil {
		return "", "", err
	}
	defer func() { _ = response.Body.Close() }()
	return readAnswer(response)
}

func readAnswer(response *http.Response) (answer, content string, err error) {
	raw, err := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusOK {
		return fmt.Sprintf("%d %s", response.StatusCode, gjson.GetBytes(raw, "error.code").Str), "", err
	}
	return "200", string(raw), err
}

// victim returns the functions with which a tenant saves and resolves turns through the gateway.
func (g *gateway) victim(key string) (
	save func(ctx context.Context, id, previous string) (string, error), resolve func(ctx context.Context, id string) (int, error),
) {
	save = func(ctx context.Context, _, previous string) (string, error) {
		body := `{"model":"scripted","input":"hello"`
		if previous != "" {
			body += fmt.Sprintf(`,"previous_response_id":%q`, previous)
		}
		answer, content, err := g.send(ctx, key, http.MethodPost, "/v1/responses", body+"}")
		if err == nil && answer != "200" {
			err = fmt.Errorf("got %s", answer)
		}
		return gjson.Get(content, "id").Str, err
	}
	resolve = func(ctx context.Context, id string) (int, error) {
		answer, content, err := g.send(ctx, key, http.MethodGet, "/v1/responses/"+id+"/input_items?limit=100", "")
		if err == nil && answer != "200" {
			err = fmt.Errorf("got %s", answer)
		}
		return (len(gjson.Get(content, "data").Array()) + 1) / 2, err
	}
	return save, resolve
}

// posts returns a request that is sent to the gateway and whose response is read in full.
func (a *arena) posts(amount int, body string) request {
	return func(ctx context.Context, _ int) (string, int, error) {
		answer, _, err := a.gateway.send(ctx, a.attacker.namespace, http.MethodPost, "/v1/responses", body)
		// A gateway that refuses a request without reading it closes the connection, which a slow client may notice first.
		if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
			return "429 overloaded", amount, nil
		}
		return answer, amount, err
	}
}

// manyStreams starts streams that never end.
func manyStreams(a *arena, _ int) (hostile, harmless request) {
	return a.streams(`{"model":"` + slowModel + `","input":"x","stream":true}`), a.posts(1, `{"model":"scripted","input":"x","stream":true}`)
}

// largeStreams starts streams that never end and that continue a history of size turns of 4 KiB. The comparison starts streams without one.
func largeStreams(a *arena, size int) (hostile, harmless request) {
	last := a.chainOf("long", size, "", bodiesOf(4<<10))
	body := `{"model":"` + slowModel + `","input":"x","stream":true`
	return a.streams(body + fmt.Sprintf(`,"previous_response_id":%q}`, last)), a.streams(body + "}")
}

// streams returns a request for a stream that does not end, which the client leaves holdFor after it has begun.
func (a *arena) streams(body string) request {
	return func(ctx context.Context, _ int) (string, int, error) {
		streamCtx, cancel := context.WithCancel(ctx)
		defer cancel()
		response, err := a.gateway.do(streamCtx, a.attacker.namespace, http.MethodPost, "/v1/responses", body)
		if err != nil {
			return "", 1, err
		}
		defer func() { _ = response.Body.Close() }()
		defer time.AfterFunc(holdFor, cancel).Stop()
		if response.StatusCode != http.StatusOK {
			answer, _, err := readAnswer(response)
			return answer, 1, err
		}
		_, _ = io.Copy(io.Discard, response.Body) // until holdFor
		return "200", 1, nil
	}
}

// tinyMembers sends bodies of size bytes in tiny members. The comparison sends as many bytes as one string.
func tinyMembers(a *arena, size int) (hostile, harmless request) {
	members := `{"model":"scripted","input":"x","metadata":{"a":1` + strings.Repeat(`,"b":1`, size/6) + `}}`
	text := `{"model":"scripted","input":"` + strings.Repeat("x", size) + `"}`
	return a.posts(len(members), members), a.posts(len(text), text)
}

// tinyItems sends inputs of size bytes in tiny items. The comparison sends as many bytes as one string.
func tinyItems(a *arena, size int) (hostile, harmless request) {
	items := `{"model":"scripted","input":[{"a":1}` + strings.Repeat(`,{"a":1}`, size/8) + `]}`
	text := `{"model":"scripted","input":"` + strings.Repeat("x", size) + `"}`
	return a.posts(len(items), items), a.posts(len(text), text)
}

// continuations continue a history of size turns of 4 KiB. The comparison sends as many bytes as one string, which the engine does not repeat.
func continuations(a *arena, size int) (hostile, harmless request) {
	const turnBytes = 4 << 10
	last := a.chainOf("long", size, "", bodiesOf(turnBytes))
	continued := fmt.Sprintf(`{"model":"scripted","input":"x","previous_response_id":%q}`, last)
	text := `{"model":"scripted","input":"x","metadata":{"a":"` + strings.Repeat("x", size*turnBytes) + `"}}`
	return a.posts(size*turnBytes, continued), a.posts(size*turnBytes, text)
}

// references refer to an item of 20,000 bytes in tiny members size times. The comparison sends as many bytes as one string, which the engine does
// not repeat.
func references(a *arena, size int) (hostile, harmless request) {
	const itemBytes = 20_000
	id := a.storedItem(`{"type":"message","role":"user","content":"x"` + strings.Repeat(`,"a":1`, itemBytes/6) + `}`)
	reference := fmt.Sprintf(`{"type":"item_reference","id":%q}`, id)
	refers := `{"model":"scripted","input":[` + reference + strings.Repeat(","+reference, size-1) + `]}`
	text := `{"model":"scripted","input":"x","metadata":{"a":"` + strings.Repeat("x", size*itemBytes) + `"}}`
	return a.posts(size*itemBytes, refers), a.posts(size*itemBytes, text)
}

// storedItem stores an item in a conversation of the attacker, and returns its ID.
func (a *arena) storedItem(item string) (id string) {
	a.Helper()
	answer, body, err := a.gateway.send(a.Context(), a.attacker.namespace, http.MethodPost, "/v1/conversations", `{"items":[`+item+`]}`)
	if err != nil || answer != "200" {
		a.Fatalf("got %s (%v)", answer, err)
	}
	path := "/v1/conversations/" + gjson.Get(body, "id").Str + "/items"
	if _, body, err = a.gateway.send(a.Context(), a.attacker.namespace, http.MethodGet, path, ""); err != nil {
		a.Fatal(err)
	}
	return gjson.Get(body, "data.0.id").Str
}

// namedItems sends size small items with the ID of one of 500,000 bytes. The comparison sends as many items with another ID.
func namedItems(a *arena, size int) (hostile, harmless request) {
	id := a.storedItem(`{"type":"message","role":"user","content":"` + strings.Repeat("x", 500_000) + `"}`)
	posts := func(id string) request {
		item := fmt.Sprintf(`{"type":"message","role":"user","content":"x","id":%q}`, id)
		return a.posts(size, `{"model":"scripted","store":false,"input":[`+item+strings.Repeat(","+item, size-1)+`]}`)
	}
	return posts(id), posts("msg_other")
}

// largeConversations reads a conversation with metadata of size bytes, which only kubectl can store. The comparison reads as many bytes of plain
// objects.
func largeConversations(a *arena, size int) (hostile, harmless request) {
	metadata := `"metadata":{"a":"` + strings.Repeat("x", size) + `"},`
	const id = "conv_large"
	if err := a.attacker.createConversation(a.Context(), id, metadata); err != nil {
		a.Fatal(err)
	}
	hostile = func(ctx context.Context, _ int) (string, int, error) {
		answer, _, err := a.gateway.send(ctx, a.attacker.namespace, http.MethodGet, "/v1/conversations/"+id, "")
		return answer, size, err
	}
	harmless = func(ctx context.Context, _ int) (string, int, error) {
		_, err := kubeclient.GetRaw(ctx, a.attacker.kube, kubeclient.Conversations, types.NamespacedName{
			Namespace: a.attacker.namespace, Name: v1alpha1.ObjectName(id),
		})
		answer, err := answerOf(err)
		return answer, size, err
	}
	return hostile, harmless
}

// webSockets keeps connections open whose turns of size bytes are not stored, but remembered. The comparison sends the same turns as requests, in
// bursts as large.
func webSockets(a *arena, size int) (hostile, harmless request) {
	text := strings.Repeat("x", size)
	turn := `"model":"scripted","store":false,"input":"` + text + `"}`
	hostile = func(ctx context.Context, _ int) (string, int, error) {
		answer, err := a.gateway.socket(ctx, a.attacker.namespace, `{"type":"response.create",`+turn)
		return answer, size, err
	}
	posts := a.posts(size, `{"stream":true,`+turn) // as on a connection
	harmless = func(ctx context.Context, n int) (string, int, error) {
		answer, amount, err := posts(ctx, n)
		sleep(ctx)
		return answer, amount, err
	}
	return hostile, harmless
}

// sleep waits for holdFor.
func sleep(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, holdFor)
	defer cancel()
	<-ctx.Done()
}

// socket sends a message on a connection of its own, which it keeps for holdFor after the answer.
func (g *gateway) socket(ctx context.Context, key, message string) (answer string, err error) {
	header := http.Header{"Authorization": {"Bearer " + key}}
	conn, response, err := websocket.Dial(ctx, g.URL+"/v1/responses", &websocket.DialOptions{HTTPHeader: header})
	if response != nil && response.StatusCode != http.StatusSwitchingProtocols {
		defer func() { _ = response.Body.Close() }()
		answer, _, err = readAnswer(response)
		return answer, err
	}
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.CloseNow() }()
	conn.SetReadLimit(-1)
	if err := conn.Write(ctx, websocket.MessageText, []byte(message)); err != nil {
		return "", err
	}
	for answer == "" {
		_, event, err := conn.Read(ctx)
		if err != nil {
			return "", err
		}
		switch gjson.GetBytes(event, "type").Str {
		case "response.completed":
			answer = "200"
		case "error":
			answer = fmt.Sprintf("%d %s", gjson.GetBytes(event, "status").Int(), gjson.GetBytes(event, "error.code").Str)
		}
	}
	sleep(ctx)
	return answer, nil
}

// unreadAnswers requests a response of size bytes and does not read the answer. The comparison reads it, as often.
func unreadAnswers(a *arena, size int) (hostile, harmless request) {
	path := "/v1/responses/" + a.storedTurn(`{"model":"scripted","input":"x","instructions":"`+strings.Repeat("x", size)+`"}`)
	get := func(read bool) request {
		return func(ctx context.Context, _ int) (string, int, error) {
			response, err := a.gateway.do(ctx, a.attacker.namespace, http.MethodGet, path, "")
			if err != nil {
				return "", 1, err
			}
			defer func() { _ = response.Body.Close() }()
			answer := "200"
			if read || response.StatusCode != http.StatusOK {
				answer, _, err = readAnswer(response)
			}
			sleep(ctx)
			return answer, 1, err
		}
	}
	return get(false), get(true)
}

// largeReads requests the input items of a turn of size bytes in tiny members. The comparison reads as many bytes of plain objects.
func largeReads(a *arena, size int) (hostile, harmless request) {
	id := a.storedTurn(`{"model":"scripted","input":[{"type":"message","role":"user","content":"x"` + strings.Repeat(`,"a":1`, size/6) + `}]}`)
	hostile = func(ctx context.Context, _ int) (string, int, error) {
		answer, _, err := a.gateway.send(ctx, a.attacker.namespace, http.MethodGet, "/v1/responses/"+id+"/input_items", "")
		return answer, size, err
	}
	return hostile, a.reads(a.plainObject(size))
}

// deletedTurns saves turns of size bytes and deletes them. The comparison sends as many requests, each of which saves one.
func deletedTurns(a *arena, size int) (hostile, harmless request) {
	body := `{"model":"scripted","input":"x","metadata":{"a":"` + strings.Repeat("x", size) + `"}}`
	hostile = func(ctx context.Context, _ int) (string, int, error) {
		answer, content, err := a.gateway.send(ctx, a.attacker.namespace, http.MethodPost, "/v1/responses", body)
		if err == nil && answer == "200" {
			answer, _, err = a.gateway.send(ctx, a.attacker.namespace, http.MethodDelete, "/v1/responses/"+gjson.Get(content, "id").Str, "")
		}
		return answer, size, err
	}
	post := a.posts(size, body)
	harmless = func(ctx context.Context, n int) (string, int, error) {
		answer, _, err := post(ctx, n)
		if err == nil && answer == "200" {
			answer, _, err = post(ctx, n)
		}
		return answer, size, err
	}
	return hostile, harmless
}

// storedTurn stores a turn of the attacker, and returns its response ID.
func (a *arena) storedTurn(body string) (id string) {
	a.Helper()
	answer, content, err := a.gateway.send(a.Context(), a.attacker.namespace, http.MethodPost, "/v1/responses", body)
	if err != nil || answer != "200" {
		a.Fatalf("got %s (%v)", answer, err)
	}
	return gjson.Get(content, "id").Str
}

// largeResponses sends texts of size bytes, which the engine repeats twice. It does not repeat the texts of the comparison.
func largeResponses(a *arena, size int) (hostile, harmless request) {
	text := strings.Repeat("x", size)
	repeated, ignored := `{"model":"scripted","input":"`+text+`"}`, `{"model":"scripted","input":"x","metadata":{"a":"`+text+`"}}`
	return a.posts(len(repeated), repeated), a.posts(len(ignored), ignored)
}

// hangingUploads sends only the beginning of a request.
func hangingUploads(a *arena, _ int) (hostile, harmless request) {
	head := "POST /v1/responses HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + a.attacker.namespace + "\r\nContent-Length: 1000000\r\n\r\n" +
		`{"input":"`
	hostile = func(ctx context.Context, _ int) (string, int, error) {
		connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", strings.TrimPrefix(a.gateway.URL, "http://"))
		if err != nil {
			return "", 1, err
		}
		defer func() { _ = connection.Close() }()
		stop := context.AfterFunc(ctx, func() { _ = connection.Close() })
		defer stop()
		if _, err := io.WriteString(connection, head); err != nil {
			return "", 1, err
		}
		if err := connection.SetReadDeadline(time.Now().Add(holdFor)); err != nil {
			return "", 1, err
		}
		response, err := http.ReadResponse(bufio.NewReader(connection), nil)
		if err != nil {
			return "200", 1, ctx.Err() // the upload hangs, as intended
		}
		defer func() { _ = response.Body.Close() }()
		answer, _, err := readAnswer(response)
		return answer, 1, err
	}
	return hostile, a.posts(1, `{"model":"scripted","input":"x"}`)
}
