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

// Package connections limits the connections of each client's address: a header that has not arrived completely takes memory, which nothing
// else limits.
package connections

import (
	"net"
	"sync"
)

// Limit returns a listener that closes the connections of an address beyond a number.
func Limit(next net.Listener, perAddress int) net.Listener {
	return &listener{Listener: next, perAddress: perAddress, open: map[string]int{}}
}

type listener struct {
	net.Listener
	perAddress int

	mu   sync.Mutex
	open map[string]int // the number of connections by address
}

// Accept returns the next connection.
func (l *listener) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		address, _, err := net.SplitHostPort(accepted.RemoteAddr().String())
		if err != nil {
			address = accepted.RemoteAddr().String()
		}
		if l.add(address) {
			return &conn{Conn: accepted, closed: sync.OnceFunc(func() { l.remove(address) })}, nil
		}
		_ = accepted.Close()
	}
}

func (l *listener) add(address string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[address] >= l.perAddress {
		return false
	}
	l.open[address]++
	return true
}

func (l *listener) remove(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[address]--; l.open[address] == 0 {
		delete(l.open, address)
	}
}

type conn struct {
	net.Conn
	closed func()
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.closed()
	return c.Conn.Close()
}
