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

package connections

import (
	"net"
	"testing"
)

// TestPerAddress: an address has a number of connections. Further ones wait, one after another, until one is closed, even more than once, and
// those beyond are closed.
func TestPerAddress(t *testing.T) {
	const open = 2
	next, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := Limit(next, open)
	dial := func() net.Conn {
		t.Helper()
		client, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		return client
	}
	accepted := make(chan net.Conn)
	go func() {
		defer close(accepted)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	accept := func(client net.Conn) net.Conn {
		t.Helper()
		server := <-accepted
		if got, want := server.RemoteAddr().String(), client.LocalAddr().String(); got != want {
			t.Errorf("accepted %s, want %s", got, want)
		}
		return server
	}
	closed := func(client net.Conn) {
		t.Helper()
		if _, err := client.Read(make([]byte, 1)); err == nil {
			t.Error("a connection beyond the limit has been answered")
		}
	}
	var used []net.Conn
	for range open {
		used = append(used, accept(dial()))
	}
	var queue []net.Conn
	for range open * waiting {
		queue = append(queue, dial())
	}
	closed(dial())
	first, last := queue[0], queue[len(queue)-1]
	_, _ = used[0].Close(), used[0].Close()
	used[0] = accept(first)
	for _, client := range queue[1 : len(queue)-1] {
		_ = used[0].Close()
		used[0] = accept(client)
	}
	_ = l.Close()
	closed(last)
	for _, server := range used {
		_ = server.Close()
	}
	if _, ok := <-accepted; ok {
		t.Error("another connection was accepted")
	}
	if left := l.(*listener).clients; len(left) > 0 {
		t.Errorf("%v connections are left", left)
	}
}
