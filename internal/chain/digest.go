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

package chain

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"sync"
)

// digestBytes is about the memory that the digest of a turn takes once it has been computed.
const digestBytes = 72

// digest is the state of the digest of a turn's items. The zero value has hashed nothing.
type digest struct {
	mu     sync.Mutex
	hash   hash.Hash // nil before the first step and after the last one
	hashed int       // bytes of the JSON
	sum    *[sha256.Size]byte
}

// Digest returns "sha256:" and, in lower-case hex, the SHA-256 of the JSON list of all entries of the turn: its instructions, if it has
// any, and its items, separated by commas without spaces. It computes what HashSome has not computed yet.
func (t *Items) Digest() string {
	for !t.HasDigest() {
		t.HashSome(maxCopy)
	}
	return "sha256:" + hex.EncodeToString(t.digest.sum[:])
}

// HasDigest reports whether the digest has been computed.
func (t *Items) HasDigest() bool {
	t.digest.mu.Lock()
	defer t.digest.mu.Unlock()
	return t.digest.sum != nil
}

// HashSome hashes the next bytes for the digest, at least one, and at most maxBytes and 1 MiB. It returns how many it has hashed: none once
// the digest has been computed. Concurrent callers share the work.
func (t *Items) HashSome(maxBytes int) (n int) {
	d := &t.digest
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sum != nil {
		return 0
	}
	if d.hash == nil {
		d.hash = sha256.New()
	}
	skip, left, all := d.hashed, min(max(maxBytes, 1), maxCopy), 0 // like a copy, a hash cannot be preempted
	for _, part := range t.list() {
		all += len(part)
		from := min(skip, len(part))
		to := min(from+left, len(part))
		d.hash.Write(part[from:to]) // never returns an error
		skip, left, n = skip-from, left-(to-from), n+to-from
	}
	if d.hashed += n; d.hashed == all {
		d.sum, d.hash = (*[sha256.Size]byte)(d.hash.Sum(nil)), nil
	}
	return n
}

// list returns the JSON list of all entries, in parts.
func (t *Items) list() [5][]byte {
	parts := [5][]byte{[]byte("["), t.Instructions, nil, t.List, []byte("]")}
	if len(t.Instructions) > 0 && len(t.List) > 0 {
		parts[2] = []byte(",")
	}
	return parts
}
