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
	"errors"
	"io"
	"strings"
	"sync"
)

// smallPayload is the size of a body that may fit into the buffers of a connection. If the connection turns out to be closed,
// the transport reads such a body a second time even though it was read completely. A larger body is read completely at most
// once.
const smallPayload = 64 << 10

// payload is the body of a request to the engine. The engine may take minutes to respond after it has read the body, and a
// stream may take as long. The memory of the body is freed earlier: once the payload is dropped and all of its readers are
// closed.
type payload struct {
	text string
	// freed is called once the text is no longer referenced.
	freed func()

	mu      sync.Mutex
	readers int
	dropped bool
}

// open returns a reader of the text. The transport opens another one if it repeats the request on a new connection.
func (p *payload) open() (io.ReadCloser, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dropped {
		return nil, errors.New("the body has been sent and freed")
	}
	p.readers++
	return &payloadReader{payload: p, text: strings.NewReader(p.text)}, nil
}

// drop indicates that the payload will not be opened again.
func (p *payload) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free(true)
}

// close closes a reader. all indicates whether it has read the whole text.
func (p *payload) close(all bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.readers--
	p.free(all && len(p.text) > smallPayload)
}

func (p *payload) free(drop bool) {
	if drop {
		p.text, p.dropped = "", true
	}
	if p.dropped && p.readers == 0 && p.freed != nil {
		p.freed()
		p.freed = nil
	}
}

// payloadReader is a reader of a payload. The transport may close it during a Read.
type payloadReader struct {
	payload *payload

	mu   sync.Mutex
	text *strings.Reader // nil after Close
}

// Read implements io.Reader.
func (r *payloadReader) Read(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.text == nil {
		return 0, errors.New("the body is closed")
	}
	return r.text.Read(p)
}

// Close implements io.Closer.
func (r *payloadReader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.text != nil {
		all := r.text.Len() == 0
		r.text = nil
		r.payload.close(all)
	}
	return nil
}
