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

// waiting is how many connections of an address may wait for each one that it may have. Each takes a file descriptor, and nothing is read
// from it.
const waiting = 4

// Limit returns a listener whose connections of an address beyond a number wait, in their order, until others of the address are closed. Further
// ones are closed. All clients of the kube-apiserver have one address, and one of them can make it connect again and again. The listener must be
// closed before an http.Server closes connections while it holds its lock, as Shutdown does.
func Limit(next net.Listener, perAddress int) net.Listener {
	l := &listener{
		Listener: next, perAddress: perAddress, admitted: make(chan admission), done: make(chan struct{}), clients: map[string]*client{},
	}
	go l.run()
	return l
}

type listener struct {
	net.Listener
	perAddress int
	admitted   chan admission
	close      sync.Once
	done       chan struct{} // closed with the listener

	mu      sync.Mutex
	clients map[string]*client // by address
}

// client is an address with at least one connection.
type client struct {
	open    int
	waiting []*conn
}

// admission is a result of Accept.
type admission struct {
	conn net.Conn
	err  error
}

// Accept returns the next connection.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case next := <-l.admitted:
		return next.conn, next.err
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close closes the listener, and the connections that wait.
func (l *listener) Close() error {
	l.close.Do(func() { close(l.done) })
	err := l.Listener.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.clients {
		for _, waiting := range c.waiting {
			_ = waiting.Conn.Close()
		}
		c.waiting = nil
	}
	return err
}

// run admits connections until the listener is closed.
func (l *listener) run() {
	for {
		accepted, err := l.Listener.Accept()
		if err == nil {
			if c := l.newConn(accepted); l.enter(c) {
				l.admit(admission{conn: c})
			}
			continue
		}
		if !l.admit(admission{err: err}) {
			return
		}
	}
}

// admit has Accept return a result, unless the listener is closed first.
func (l *listener) admit(next admission) bool {
	select {
	case l.admitted <- next:
		return true
	case <-l.done:
		if next.conn != nil {
			_ = next.conn.Close()
		}
		return false
	}
}

func (l *listener) newConn(accepted net.Conn) *conn {
	address, _, err := net.SplitHostPort(accepted.RemoteAddr().String())
	if err != nil {
		address = accepted.RemoteAddr().String()
	}
	return &conn{Conn: accepted, address: address, closed: sync.OnceFunc(func() { l.leave(address) })}
}

// enter reports whether a connection may be used. Otherwise, it waits or is closed.
func (l *listener) enter(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.clients[c.address]
	if of == nil {
		of = &client{}
		l.clients[c.address] = of
	}
	switch {
	case of.open < l.perAddress:
		of.open++
		return true
	case len(of.waiting) < waiting*l.perAddress:
		of.waiting = append(of.waiting, c)
	default:
		_ = c.Conn.Close()
	}
	return false
}

// leave ends the use of a connection of an address, and admits one that waits.
func (l *listener) leave(address string) {
	if next := l.next(address); next != nil {
		l.admit(admission{conn: next})
	}
}

// next returns the connection that may be used instead of one that is not used any more, or nil.
func (l *listener) next(address string) *conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.clients[address]
	if len(of.waiting) > 0 {
		next := of.waiting[0]
		of.waiting = of.waiting[1:]
		return next
	}
	if of.open--; of.open == 0 {
		delete(l.clients, address)
	}
	return nil
}

type conn struct {
	net.Conn
	address string
	closed  func()
}

// Close implements net.Conn.
func (c *conn) Close() error {
	err := c.Conn.Close()
	c.closed()
	return err
}
