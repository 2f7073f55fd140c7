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

	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/history"
)

// Query is what Resolver.Resolve accepts and returns.
type Query struct {
	chain.WalkOptions
	// Digests has the digests of all turns computed within the shares of the namespace.
	Digests bool
}

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
