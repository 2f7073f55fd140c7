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

package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/tidwall/gjson"
)

// TestWebSocketHandshake checks who may open a connection.
func TestWebSocketHandshake(t *testing.T) {
	off := func(o *Options) { o.MaxWebSockets = 0 }
	local := func(o *Options) { o.InsecureAllowAnonymous = false }
	for name, tc := range map[string]struct {
		change  func(*Options)
		headers []string
		want    string
	}{
		"key":         {twoTenants(t), []string{"Authorization", "Bearer a"}, "OK"},
		"no key":      {twoTenants(t), nil, "Unauthorized invalid_api_key"},
		"unknown key": {twoTenants(t), []string{"Authorization", "Bearer c"}, "Unauthorized invalid_api_key"},
		"program":     {local, nil, "OK"},
		"web page":    {local, []string{"Origin", "https://evil.example"}, "Forbidden forbidden_origin"},
		"web page, anonymous clients": {
			func(o *Options) { o.InsecureAllowAnonymous = true }, []string{"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"},
			"Forbidden forbidden_origin",
		},
		"allowed page": {
			func(o *Options) {
				o.InsecureAllowAnonymous, o.CORSAllowedOrigins = true, []string{"https://good.example"}
			},
			[]string{"Origin", "https://good.example", "Sec-Fetch-Site", "cross-site"}, "OK",
		},
		"turned off":     {off, nil, "Upgrade Required websocket_disabled"},
		"page, with key": {twoTenants(t), []string{"Authorization", "Bearer a", "Origin", "https://app.example"}, "OK"},
	} {
		t.Run(name, func(t *testing.T) {
			got := "OK"
			c, response := start(t, nil, tc.change).tryDial(tc.headers...)
			if c == nil {
				got = response.code()
			}
			if got != tc.want {
				t.Errorf("got %s: %s, want %s", got, response.body, tc.want)
			}
		})
	}
	t.Run("no upgrade", func(t *testing.T) {
		r := start(t, nil).do(http.MethodGet, "/v1/responses", "")
		if r.code() != "Upgrade Required upgrade_required" || r.header.Get("Upgrade") != "websocket" {
			t.Errorf("got %d %s %v", r.status, r.body, r.header)
		}
	})
}

// TestWebSocketKeys: an open connection creates no more responses when its key is revoked, or belongs to another tenant, and is closed, even if
// the client sends nothing.
func TestWebSocketKeys(t *testing.T) {
	for name, content := range map[string]string{
		"revoked": "[]", "another tenant's": "[{namespace: b, key: sk-a}]",
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := startTenants(t)
			c := f.dial("Authorization", "Bearer sk-a")
			c.say("one", "", "")
			if err := f.gateway.tenants.load([]byte(content)); err != nil {
				t.Fatal(err)
			}
			_ = c.conn.Write(t.Context(), websocket.MessageText, []byte(`{"type":"response.create","input":"two"}`)) // it may be closed already
			_, data, err := c.conn.Read(t.Context())
			if err == nil {
				c.wantError(reply{body: string(data), status: int(gjson.GetBytes(data, "status").Int())}, "Unauthorized invalid_api_key")
				_, data, err = c.conn.Read(t.Context())
			}
			if websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
				t.Errorf("got %s, %v, want that the connection is closed", data, err)
			}

			f, _ = startTenants(t)
			f.gateway.pingInterval = 50 * time.Millisecond
			idle, closed := f.dial("Authorization", "Bearer sk-a"), make(chan struct{})
			go func() { // answers pings, too
				defer close(closed)
				idle.wantClose(websocket.StatusPolicyViolation)
			}()
			if err := f.gateway.tenants.load([]byte(content)); err != nil {
				t.Fatal(err)
			}
			<-closed
		})
	}
}

// TestWebSocketShare checks that a tenant that has opened all connections that it may does not affect others, and that connections
// hold neither requests nor much memory.
func TestWebSocketShare(t *testing.T) {
	f := start(t, nil, twoTenants(t), func(o *Options) { o.MaxWebSockets = 6 })
	var open []*wsClient
	for {
		c, refused := f.tryDial("Authorization", "Bearer a")
		if c == nil {
			if refused.code() != "Too Many Requests overloaded" || !strings.Contains(refused.get("error.message"), "--max-websockets") {
				t.Errorf("got %d %s", refused.status, refused.body)
			}
			break
		}
		open = append(open, c)
	}
	if len(open) != 3 {
		t.Errorf("got %d connections, want half of 6", len(open))
	}
	f.awaitMemory(3 * socketBytes)
	f.eventually("a connection holds a request", func() bool { return f.gateway.requests.budget.Used() == 0 })
	other := f.dial("Authorization", "Bearer b")
	for _, c := range append(open, other) {
		c.say("one", "", "")
	}
	for _, c := range open[:2] { // now that there is another tenant, the share is a third
		_ = c.conn.CloseNow()
	}
	f.awaitConnections(2)
	f.dial("Authorization", "Bearer a").say("one", "", "")
}

// awaitMemory waits until calls hold a number of bytes.
func (f *fixture) awaitMemory(want int64) {
	f.t.Helper()
	f.eventually(fmt.Sprintf("calls hold more or less than %d bytes", want), func() bool { return f.gateway.memory.budget.Used() == want })
}

// TestWebSocketOverloaded checks that a request without a share is rejected, and can be repeated.
func TestWebSocketOverloaded(t *testing.T) {
	steps := make(chan string)
	f := start(t, stepHandler(steps, make(chan struct{})), func(o *Options) { o.MaxInFlightStreams = 2 })
	stream := f.open(t.Context(), `{"input":"a","stream":true}`)
	steps <- sse(created)
	nextData(stream)
	c := f.dial()
	refused := c.ask(`"input":"a"`)
	if c.wantError(refused, "Too Many Requests overloaded"); refused.get("error.headers") != `{"retry-after":"1"}` {
		t.Errorf("got %s, want it to say when to retry", refused.body)
	}
	steps <- sse(completed)
	close(steps)
	for nextData(stream).body != "" {
		continue
	}
	f.awaitMemory(socketBytes)
	if got := c.ask(`"input":"a"`); got.get("type") != "response.failed" { // the engine has no more steps
		t.Errorf("got %s", got.body)
	}
}

// TestWebSocketIdempotencyKey: the key of the handshake would be that of every response.
func TestWebSocketIdempotencyKey(t *testing.T) {
	c := start(t, nil).dial("Idempotency-Key", "k", "X-Request-Id", "mine")
	if first, second := c.say("one", "", ""), c.say("one", "", ""); first == second {
		t.Error("got the same response twice")
	}
	if _, header := c.sent.last(); header.Get("X-Request-Id") != "mine-2" {
		t.Errorf("the engine got the request ID %q", header.Get("X-Request-Id"))
	}
}
