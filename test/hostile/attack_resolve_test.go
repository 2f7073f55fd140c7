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
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/internal/kubeclient"
)

// resolveAttacks request histories that are costly to assemble.
var resolveAttacks = map[string]attack{
	"slow readers of large histories": {
		clients: 16, small: 12, large: 12, prepare: slowReaders, answers: map[string]bool{"200": true, "429": false},
	},
	"deep broken chains": {
		clients: 16, small: 100, large: 2000, prepare: deepBrokenChain,
		answers: map[string]bool{"422 session.chain.not_found": true, "429": false, "503": false, "504": false},
	},
	"cold histories": {
		clients: 16, small: 16, large: 64, prepare: coldHistories, answers: map[string]bool{"200": true, "429": false},
	},
	"WebSockets of the resolve API": {
		clients: 64, small: 10, large: 10, prepare: upgrades, answers: map[string]bool{"400 UnexpectedServerResponse": true},
	},
	"many clients request one history": {
		clients: 64, small: 2, large: 8, prepare: oneHistory, answers: map[string]bool{"200": true, "429": false},
	},
}

// ok are the bodies of a small turn.
const ok = `"request":{"input":"x"},"response":{"output":[]}`

// holdFor is how long a slow client keeps a connection.
const holdFor = 2 * time.Second

// chainOf creates a chain of turns with bodies, and returns the ID of the last one.
func (a *arena) chainOf(name string, turns int, first, bodies string) (last string) {
	a.Helper()
	id := func(i int) string { return fmt.Sprintf("resp_%s_%d", name, i) }
	a.createAll(turns, func(i int) []byte {
		previous := first
		if i > 0 {
			previous = id(i - 1)
		}
		if previous == "" {
			return session(id(i), bodies)
		}
		return session(id(i), fmt.Sprintf(`"previousResponseID":%q,%s`, previous, bodies))
	})
	return id(turns - 1)
}

// bodiesOf returns bodies of about a size.
func bodiesOf(size int) string {
	return `"request":{"input":"x"},"response":{"output":[{"type":"message","text":"` + strings.Repeat("lorem ", size/6) + `"}]}`
}

// resolves returns a request for a history that is read as fast as possible.
func (a *arena) resolves(id func(n int) string) request {
	return a.asks(func(n int) *rest.Request { return a.attacker.resolve(id(n)) })
}

// unreadBytes is how much of an answer arrives that no one reads: the window of Go's HTTP/2 client for one response.
const unreadBytes = 4 << 20

// slowReaders request a history of size MiB and do not read it. The comparison reads as many bytes of plain objects as arrive.
func slowReaders(a *arena, size int) (hostile, harmless request) {
	last := a.chainOf("large", size, "", bodiesOf(1<<20))
	if _, err := kubeclient.Read(a.Context(), a.attacker.resolve(last)); err != nil { // from now on the history is cached
		a.Fatal(err)
	}
	hostile = func(ctx context.Context, _ int) (string, int, error) {
		body, err := a.attacker.resolve(last).Stream(ctx)
		if err == nil {
			select {
			case <-time.After(holdFor):
			case <-ctx.Done():
			}
			_ = body.Close()
		}
		answer, err := answerOf(err)
		return answer, unreadBytes, err
	}
	return hostile, a.reads(a.plainObject(1 << 20))
}

// upgrades requests histories of size turns over WebSockets, some of them with handshakes that are not complete. The kube-apiserver makes a
// connection to the resolve API for each of them.
func upgrades(a *arena, size int) (hostile, harmless request) {
	last := a.chainOf("upgraded", size, "", ok)
	config := rest.CopyConfig(a.attacker.config)
	config.NextProtos = []string{"http/1.1"} // HTTP/2 has no upgrades
	client, err := kubeclient.New(config)
	if err != nil {
		a.Fatal(err)
	}
	request := func(n int) *rest.Request {
		upgrade := a.attacker.resolveWith(client, last).SetHeader("Connection", "Upgrade").SetHeader("Upgrade", "websocket")
		if n%2 == 0 {
			return upgrade
		}
		return upgrade.SetHeader("Sec-WebSocket-Version", "13").SetHeader("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA==")
	}
	return a.asks(request), a.asks(func(int) *rest.Request { return a.attacker.resolveWith(client, last) })
}

// deepBrokenChain: a chain of size turns whose first parent is missing, so that each of its turns has to be confirmed.
func deepBrokenChain(a *arena, size int) (hostile, harmless request) {
	broken := a.chainOf("broken", size, "resp_missing", ok)
	intact := a.chainOf("intact", size, "", ok)
	return a.resolves(func(int) string { return broken }), a.resolves(func(int) string { return intact })
}

// coldHistories: size conversations are resolved one after another. 16 of them are twice what the cache of items holds. The
// comparison reads as many bytes of plain objects.
func coldHistories(a *arena, size int) (hostile, harmless request) {
	last := make([]string, size)
	for i := range last {
		last[i] = a.chainOf(fmt.Sprintf("cold_%d", i), 2*cacheBytes/coldTurn/16, "", bodiesOf(coldTurn))
	}
	return a.reads(func(n int) *rest.Request { return a.attacker.resolve(last[n%size]) }), a.reads(a.plainObject(coldTurn))
}

// coldTurn is the size of the turns of coldHistories.
const coldTurn = 512 << 10

// oneHistory: all clients request the same history of size MiB, and again at once if they are refused, which most are. The comparison
// reads as many plain objects, some of them so large that there are as many bytes.
func oneHistory(a *arena, size int) (hostile, harmless request) {
	last := a.chainOf("shared", size, "", bodiesOf(1<<20))
	histories := a.reads(func(int) *rest.Request { return a.attacker.resolve(last) })
	small, large := a.reads(a.plainObject(1)), a.reads(a.plainObject(1<<20))
	var mu sync.Mutex
	requests, bytes, due := 0, 0, 0 // the last are the bytes that the comparison has yet to read
	hostile = func(ctx context.Context, n int) (string, int, error) {
		answer, read, err := histories(ctx, n)
		mu.Lock()
		defer mu.Unlock()
		requests++
		bytes += read
		return answer, 1, err
	}
	next := func() request {
		mu.Lock()
		defer mu.Unlock()
		due += bytes / max(requests, 1)
		if due < 1<<20 {
			return small
		}
		due -= 1 << 20
		return large
	}
	return hostile, func(ctx context.Context, n int) (string, int, error) {
		answer, _, err := next()(ctx, n)
		return answer, 1, err
	}
}

// reads returns a request for bytes that are read as fast as possible.
func (a *arena) reads(from func(n int) *rest.Request) request {
	return func(ctx context.Context, n int) (string, int, error) {
		body, err := kubeclient.Read(ctx, from(n))
		answer, err := answerOf(err)
		return answer, len(body), err
	}
}
