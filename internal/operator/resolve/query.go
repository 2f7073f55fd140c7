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

package resolve

import (
	"context"
	"crypto/sha256"
	"encoding/binary"

	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/history"
	"github.com/catena-dev/catena/internal/operator/sessions"
)

// Query is what Resolver.Resolve accepts and returns.
type Query struct {
	chain.WalkOptions
	// NoItems has no items read: the result has only the Path.
	NoItems bool
	// NoWait has the query rejected with a *ThrottledError when the namespace exceeds a rate, instead of waiting a moment.
	NoWait bool
	// Digests has the digests of all turns computed within the shares of the namespace.
	Digests bool
	// Unchanged, unless it is nil, is called with the result before any items are read. If it returns true, because the caller already has
	// the items, they are not read. It is called again if a session has changed in the meantime. It must not block.
	Unchanged func(*Result) bool
}

// Revision identifies the contents of a chain. It is the same if the UIDs and the generations of all turns are, on every replica. These fix the
// spec of a session, and so the bodies outside the object too, because the spec has their digest. Writes of the status change neither.
type Revision [sha256.Size]byte

func revisionOf(path []*sessions.Record) (revision Revision) {
	hash := sha256.New()
	turn := make([]byte, 0, len(sessions.UID{})+8)
	for _, s := range path {
		hash.Write(binary.BigEndian.AppendUint64(append(turn, s.UID[:]...), uint64(s.Generation)))
	}
	hash.Sum(revision[:0])
	return revision
}

// walkCost is what it costs to walk to a turn and to hash its revision, in bytes of a cached history that would take as long. Without it,
// clients that already have the items could have chains of thousands of turns walked without limit. A turn takes 0.2 µs, and at the default
// rate 64 bytes take 1 µs.
const walkCost = 64

// digestStep is how many bytes are hashed before other namespaces get the processor. They take about 10 ms.
const digestStep = 4 << 20

// digest computes the digests of turns.
func (l *lookup) digest(ctx context.Context, turns []history.TurnItems) error {
	for len(turns) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := l.process(ctx, l.namespace, func() { turns = hashStep(turns) }); err != nil {
			return err
		}
	}
	return nil
}

// hashStep hashes about digestStep bytes, and returns the turns without those whose digests have been computed.
func hashStep(turns []history.TurnItems) []history.TurnItems {
	for left := digestStep; left > 0 && len(turns) > 0; {
		hashed := turns[0].Items.HashSome(left)
		if left -= hashed; hashed == 0 {
			turns = turns[1:]
		}
	}
	return turns
}
