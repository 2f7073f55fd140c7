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

// TestPerAddress: an address has a number of connections, and gets another one when one is closed, even more than once.
func TestPerAddress(t *testing.T) {
	next, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := Limit(next, 2)
	dial := func() net.Conn {
		t.Helper()
		client, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		return client
	}
	accept := func() net.Conn {
		t.Helper()
		server, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return server
	}
	dial()
	dial()
	first, second := accept(), accept()
	refused := dial()
	accepted := make(chan net.Conn)
	go func() {
		defer close(accepted)
		if c, err := l.Accept(); err == nil {
			accepted <- c
		}
	}()
	if _, err := refused.Read(make([]byte, 1)); err == nil {
		t.Error("the third connection has been answered")
	}
	_, _ = first.Close(), first.Close()
	client, server := dial(), <-accepted
	if got, want := server.RemoteAddr().String(), client.LocalAddr().String(); got != want {
		t.Errorf("accepted %s, want %s", got, want)
	}
	_, _, _ = second.Close(), server.Close(), l.Close()
	if _, ok := <-accepted; ok {
		t.Error("another connection was accepted")
	}
	if open := l.(*listener).open; len(open) > 0 {
		t.Errorf("%v connections are left", open)
	}
}
