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

import "iter"

// fault is what stops a walk at a turn, or at a place in the graph.
type fault uint8

const (
	faultNone fault = iota
	faultMissing
	faultPending
	faultNotCompleted
	faultUnreadable
	faultCycle
	faultDepth
	numFaults
)

// reasons are those of the ChainValid condition, as api/v1alpha1 has them.
var reasons = [numFaults]string{
	faultNone:         "Resolved",
	faultMissing:      "ParentNotFound",
	faultPending:      "TurnPending",
	faultNotCompleted: "TurnNotCompleted",
	faultUnreadable:   "SnapshotUnreadable",
	faultCycle:        "CycleDetected",
	faultDepth:        "DepthExceeded",
}

func (f fault) isStatus() bool { return f == faultPending || f == faultNotCompleted }

// Verdict is what the walk answers for a turn with the index's depth limit, and the turn's place in the graph.
type Verdict struct {
	// Reason is a reason of the ChainValid condition, such as Resolved or ParentNotFound.
	Reason string
	// BrokenAt is the response ID at which the walk fails, empty where it does not.
	BrokenAt string
	// Depth is the number of turns from the root, both counted. It is zero where no root is reached.
	Depth int
	// Root is the response ID of the root, empty where none is reached.
	Root string
	// OnCycle is set where following the parents leads back to the turn itself.
	OnCycle bool
}

// Index keeps the verdict of every turn of one namespace current while turns come, change and go, in any order. V is a
// handle of the caller's, kept with the turn. It is not safe for concurrent use.
//
// A change costs time in the number of the turn's descendants: a new turn, which has none, costs O(1) however deep it
// is. Asking for a verdict is O(1) too, up to the depth limit where the chain is beyond it. Nothing recurses.
//
// Each turn is a node that inherits from its parent where the walk stops and how far away that is. So a node that
// changes is recomputed from its parent, and its descendants from theirs, in preorder, by the links of the tree alone.
// A parent that is named but not stored is a node too. A turn has one parent, so a component is a tree below a root, a
// tree below a missing turn, or trees below a cycle; only the nodes of a cycle need to be computed together.
type Index[V any] struct {
	maxDepth int
	nodes    map[string]*node[V]
	reasons  [numFaults]int
}

type node[V any] struct {
	id          string
	value       V
	parent      *node[V] // nil for roots and missing turns
	firstChild  *node[V]
	nextSibling *node[V]
	prevSibling *node[V]
	place[V]
	own    fault // faultMissing for a node that is not stored
	cyclic bool
}

// place is what a node inherits: all that its verdict depends on, but for the turn at the depth limit.
type place[V any] struct {
	stop      *node[V] // where the walk stops, nil where it reaches the root
	root      *node[V] // nil where no root is reached, whatever the walk does before
	distance  int32    // number of turns that the walk passes before it stops
	depth     int32    // number of turns from the root
	stopFault fault
}

// NewIndex returns an empty index whose verdicts count maxDepth turns at most.
func NewIndex[V any](maxDepth int) *Index[V] {
	return &Index[V]{maxDepth: max(maxDepth, 0), nodes: map[string]*node[V]{}}
}

func (n *node[V]) stored() bool { return n.own != faultMissing }

// Len returns the number of turns.
func (x *Index[V]) Len() int {
	total := 0
	for _, count := range x.reasons {
		total += count
	}
	return total
}

// Reasons calls yield with each reason and the number of turns that have it, zero included.
func (x *Index[V]) Reasons(yield func(reason string, turns int) bool) {
	for f, count := range x.reasons {
		if !yield(reasons[f], count) {
			return
		}
	}
}

// Get returns the handle of a turn.
func (x *Index[V]) Get(id string) (V, bool) {
	n := x.nodes[id]
	if n == nil || !n.stored() {
		var none V
		return none, false
	}
	return n.value, true
}

// Verdict returns the verdict of a turn, and false where the turn is not in the index.
func (x *Index[V]) Verdict(id string) (Verdict, bool) {
	n := x.nodes[id]
	if n == nil || !n.stored() {
		return Verdict{}, false
	}
	f := x.fault(n)
	v := Verdict{Reason: reasons[f], Depth: int(n.depth), OnCycle: n.cyclic}
	if n.root != nil {
		v.Root = n.root.id
	}
	switch f {
	case faultNone:
	case faultDepth:
		v.BrokenAt = n.ancestor(x.maxDepth).id
	default:
		v.BrokenAt = n.stop.id
	}
	return v, true
}

// Path returns the handles of the turns from the root to id, oldest first, where every guard passes with the given
// depth limit. Otherwise it returns nil: ask Walk why.
func (x *Index[V]) Path(id string, maxDepth int) []V {
	n := x.nodes[id]
	if n == nil || n.stop != nil || int(n.depth) > maxDepth {
		return nil
	}
	path := make([]V, n.depth)
	for ; n != nil; n = n.parent {
		path[n.depth-1] = n.value
	}
	return path
}

// Children calls yield with the handle of each stored child of a turn, in no order.
func (x *Index[V]) Children(id string) iter.Seq[V] {
	return func(yield func(V) bool) {
		n := x.nodes[id]
		if n == nil {
			return
		}
		for child := n.firstChild; child != nil; child = child.nextSibling {
			if !yield(child.value) {
				return
			}
		}
	}
}

// Set adds a turn, or replaces the one with its ID, and returns the IDs of the turns whose verdict that changed, a new
// turn's own included.
func (x *Index[V]) Set(turn Turn, value V) []string {
	n := x.node(turn.ID)
	n.value = value
	var before []string
	moved := !n.stored() || n.previous() != turn.Previous
	switch {
	case !moved && n.own == turn.fault():
		return nil
	case moved && n.stored():
		before = x.ancestry(n)
		x.unlink(n)
	}
	fresh := !n.stored()
	n.own = turn.fault()
	if moved && turn.Previous != "" {
		x.link(n, x.node(turn.Previous))
	}
	return x.judge(n, judgement{fresh: fresh, moved: moved, before: before})
}

// Delete removes a turn and returns the IDs of the turns whose verdict that changed, its own not among them.
func (x *Index[V]) Delete(id string) []string {
	n := x.nodes[id]
	if n == nil || !n.stored() {
		return nil
	}
	x.reasons[x.fault(n)]--
	x.unlink(n)
	n.own = faultMissing
	var none V
	n.value = none
	changed := x.judge(n, judgement{moved: true})
	x.release(n)
	return changed
}

func (x *Index[V]) node(id string) *node[V] {
	n := x.nodes[id]
	if n == nil {
		n = &node[V]{id: id, own: faultMissing}
		n.place = n.inherit()
		x.nodes[id] = n
	}
	return n
}

// release forgets a node that nothing refers to.
func (x *Index[V]) release(n *node[V]) {
	if !n.stored() && n.firstChild == nil {
		delete(x.nodes, n.id)
	}
}

func (x *Index[V]) link(n, parent *node[V]) {
	n.parent = parent
	n.nextSibling = parent.firstChild
	if n.nextSibling != nil {
		n.nextSibling.prevSibling = n
	}
	parent.firstChild = n
}

func (x *Index[V]) unlink(n *node[V]) {
	parent := n.parent
	if parent == nil {
		return
	}
	if n.prevSibling != nil {
		n.prevSibling.nextSibling = n.nextSibling
	} else {
		parent.firstChild = n.nextSibling
	}
	if n.nextSibling != nil {
		n.nextSibling.prevSibling = n.prevSibling
	}
	n.parent, n.prevSibling, n.nextSibling = nil, nil, nil
	if parent != n {
		x.release(parent)
	}
}

func (n *node[V]) previous() string {
	if n.parent == nil {
		return ""
	}
	return n.parent.id
}

func (n *node[V]) ancestor(distance int) *node[V] {
	for range distance {
		n = n.parent
	}
	return n
}

// ancestry returns the IDs of the node and its ancestors, up to the depth limit.
func (x *Index[V]) ancestry(n *node[V]) []string {
	var ids []string
	for ; n != nil && len(ids) <= x.maxDepth; n = n.parent {
		ids = append(ids, n.id)
	}
	return ids
}

// fault returns the guard that fires first in the walk from n.
func (x *Index[V]) fault(n *node[V]) fault {
	switch {
	case n.stop != nil && int(n.distance) < x.maxDepth:
		return n.stopFault
	case n.stop != nil || int(n.depth) > x.maxDepth:
		return faultDepth
	}
	return faultNone
}

// inherit computes the place of a node that is not on a cycle from its parent's.
func (n *node[V]) inherit() place[V] {
	var p place[V]
	switch {
	case !n.stored():
	case n.parent == nil:
		p.root, p.depth = n, 1
	case n.parent.root != nil:
		p.root, p.depth = n.parent.root, n.parent.depth+1
	}
	switch {
	case n.own != faultNone:
		p.stop, p.stopFault = n, n.own
	case n.parent != nil && n.parent.stop != nil:
		p.stop, p.stopFault, p.distance = n.parent.stop, n.parent.stopFault, n.parent.distance+1
	}
	return p
}
