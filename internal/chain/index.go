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

// Verdict is the result of the walk from a turn with the index's depth limit, and the turn's position in the graph.
type Verdict struct {
	// Rule is the rule that the chain breaks, Resolved if it breaks none.
	Rule Rule
	// BrokenAt is the response ID at which the walk fails, empty if it does not.
	BrokenAt string
	// Depth is the number of turns from the root, both counted. It is zero if no root is reached.
	Depth int
	// Root is the response ID of the root, empty if none is reached.
	Root string
	// OnCycle is set if following the parents leads back to the turn itself.
	OnCycle bool
	// Lineage is a hash of the identities of the turns from the root to this one. It is zero if one of them breaks a rule by itself, even with
	// WalkOptions.ContinueIncomplete, or no root is reached.
	Lineage uint64
}

// Index keeps the verdict of every turn of one namespace current while turns are added, changed and removed, in any order.
// V is the type of the caller's values, one for each turn. An Index is not safe for concurrent use.
//
// A change takes time proportional to the number of descendants of the turn: a new turn, which has none, takes O(1) at any
// depth. So does Verdict, except that it follows a chain beyond the depth limit up to that limit. Nothing recurses.
//
// Each turn is a node that inherits its position from its parent: where the walk stops and how far away that is. So a node
// that changes is recomputed from its parent, and its descendants from theirs, in preorder, by the links of the tree alone.
// A parent that is named but not stored is a node too. A turn has one parent, so a component is a tree below a root, a
// tree below a missing turn, or trees below a cycle; only the nodes of a cycle have to be computed together.
type Index[V any] struct {
	maxDepth int
	identity func(V) uint64
	names    func(V) (id, previous string)
	nodes    map[string]*node[V]
	counts   [numRules]int // of stored turns, by the rule that they break
	judged   uint64
}

// node has no ID of its own, which would take 16 bytes for each turn: see Index.id.
type node[V any] struct {
	value       V
	parent      *node[V] // nil for roots and missing turns
	firstChild  *node[V]
	nextSibling *node[V]
	prevSibling *node[V]
	// The fields of the node's position, so that the small ones share the last word with those below.
	stop, root      *node[V]
	lineage         uint64
	distance, depth int32
	broken          Rule

	own Rule // the rule that the turn breaks by itself; ParentNotFound if it is not stored
	// continued is own with WalkOptions.ContinueIncomplete, if the turn is stored.
	continued Rule
	cyclic    bool

	unreadable bool // a part of the position
}

// position is the state that a node inherits. Its verdict depends on nothing else, except that a verdict of DepthExceeded also
// names the turn at the depth limit.
type position[V any] struct {
	stop     *node[V] // where the walk stops, nil if it reaches the root
	root     *node[V] // nil if no root is reached, wherever the walk stops
	lineage  uint64   // of the turns from the root, 0 if none is reached
	distance int32    // number of turns that the walk passes before it stops
	depth    int32    // number of turns from the root
	broken   Rule     // the rule that stops it
	// unreadable is set if no walk from the root passes all turns, with WalkOptions.ContinueIncomplete and whatever the depth limit.
	unreadable bool
}

func (n *node[V]) position() position[V] {
	return position[V]{n.stop, n.root, n.lineage, n.distance, n.depth, n.broken, n.unreadable}
}

func (n *node[V]) setPosition(p *position[V]) {
	n.stop, n.root, n.lineage, n.distance, n.depth, n.broken, n.unreadable = p.stop, p.root, p.lineage, p.distance, p.depth, p.broken, p.unreadable
}

// NewIndex returns an empty index. Its verdicts allow chains of up to maxDepth turns. identity returns a number for the value of a turn, which
// differs between turns that have had the same ID, and names returns the IDs of the turn and of its parent.
func NewIndex[V any](maxDepth int, identity func(V) uint64, names func(V) (id, previous string)) *Index[V] {
	return &Index[V]{maxDepth: max(maxDepth, 0), identity: identity, names: names, nodes: map[string]*node[V]{}}
}

func (n *node[V]) stored() bool { return n.own != ParentNotFound }

// Len returns the number of turns.
func (x *Index[V]) Len() int {
	total := 0
	for _, count := range x.counts {
		total += count
	}
	return total
}

// Counts yields each rule that can be the verdict on a stored turn and the number of turns that break it, zeros included.
func (x *Index[V]) Counts(yield func(broken Rule, turns int) bool) {
	for r := range Reasons() {
		if !yield(r, x.counts[r]) {
			return
		}
	}
}

// Judged returns how many verdicts all changes so far have computed. The time that a change takes is proportional to its part of them.
func (x *Index[V]) Judged() uint64 { return x.judged }

// All yields the value of each turn, in no order.
func (x *Index[V]) All(yield func(V) bool) {
	for _, n := range x.nodes {
		if n.stored() && !yield(n.value) {
			return
		}
	}
}

// Get returns the value of a turn.
func (x *Index[V]) Get(id string) (V, bool) {
	n := x.nodes[id]
	if n == nil || !n.stored() {
		var none V
		return none, false
	}
	return n.value, true
}

// Verdict returns the verdict on a turn, and false if the turn is not in the index.
func (x *Index[V]) Verdict(id string) (Verdict, bool) {
	n := x.nodes[id]
	if n == nil || !n.stored() {
		return Verdict{}, false
	}
	v := Verdict{Rule: x.broken(n), Depth: int(n.depth), OnCycle: n.cyclic, Lineage: n.position().complete()}
	if n.root != nil {
		v.Root = x.id(n.root)
	}
	switch v.Rule {
	case Resolved:
	case DepthExceeded:
		v.BrokenAt = x.id(n.ancestor(x.maxDepth))
	default:
		v.BrokenAt = x.id(n.stop)
	}
	return v, true
}

// Path returns the values of the turns from the root to id, or of the last of them, oldest first, if the walk with the given options breaks
// no rule. Otherwise it returns nil; Walk returns the reason. It also returns nil if the path has turns that only IncludeIncomplete or
// IncludeUnreadable accepts, because these may change soon, or turns of a cycle.
func (x *Index[V]) Path(id string, opts WalkOptions) []V {
	n := x.nodes[id]
	if n == nil {
		return nil
	}
	turns := int(n.depth) // 0 if no root is reached
	if opts.Last > 0 && (turns == 0 || turns > opts.Last) {
		turns = opts.Last
	}
	stops := n.stop != nil && int(n.distance) < turns
	if turns == 0 || turns > opts.MaxDepth || stops && !opts.ContinueIncomplete {
		return nil
	}
	path := make([]V, turns)
	for i := turns - 1; i >= 0; i-- {
		if n == nil || n.cyclic || !n.passes(opts) {
			return nil
		}
		path[i] = n.value
		n = n.parent
	}
	return path
}

// passes reports whether a walk passes the turn, as far as that depends on the turn itself.
func (n *node[V]) passes(opts WalkOptions) bool {
	if !n.stored() || !opts.ContinueIncomplete {
		return n.own == Resolved
	}
	return n.continued == Resolved
}

// Since returns the number of turns on the path to id that come after the turn with the given lineage. If none of the last turns, up to the
// limit, has it, all turns of the path count.
func (x *Index[V]) Since(id string, lineage uint64, limit int) int {
	n := x.nodes[id]
	if n == nil {
		return 0
	}
	turns, all := 0, int(n.depth)
	for turns < all && n.lineage != lineage {
		if turns == limit {
			return all
		}
		turns++
		n = n.parent
	}
	return turns
}

// Children calls yield with the value of each stored child of a turn, in no order.
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

// Set adds a turn, or replaces the one with its ID, and returns the values of the turns whose verdict has changed, including
// that of a new turn. The names of the value are those of the turn, and never change.
func (x *Index[V]) Set(turn Turn, value V) []V {
	n := x.node(turn.ID)
	replaced := n.stored() && x.identity(n.value) != x.identity(value)
	own, continued := turn.broken(false), turn.broken(true)
	same := n.own == own && n.continued == continued
	fresh := !n.stored()
	moved := fresh || x.previous(n) != turn.Previous
	var before []string
	if moved && !fresh { // while n has its old value, which names its parent
		before = x.ancestry(n)
		x.unlink(n)
	}
	n.value, n.continued = value, continued
	if !moved && !replaced && same {
		return nil
	}
	n.own = own
	if moved && turn.Previous != "" {
		x.link(n, x.node(turn.Previous))
	}
	return x.recompute(n, change{fresh: fresh, moved: moved, replaced: replaced, before: before})
}

// Delete removes a turn and returns the values of the other turns whose verdict has changed.
func (x *Index[V]) Delete(id string) []V {
	n := x.nodes[id]
	if n == nil || !n.stored() {
		return nil
	}
	x.counts[x.broken(n)]--
	x.unlink(n)
	n.own = ParentNotFound
	var none V
	n.value = none
	changed := x.recompute(n, change{moved: true})
	x.release(n, id)
	return changed
}

func (x *Index[V]) node(id string) *node[V] {
	n := x.nodes[id]
	if n == nil {
		n = &node[V]{own: ParentNotFound}
		n.setPosition(new(n.inherit()))
		x.nodes[id] = n
	}
	return n
}

// release removes a node if nothing refers to it.
func (x *Index[V]) release(n *node[V], id string) {
	if !n.stored() && n.firstChild == nil {
		delete(x.nodes, id)
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

// unlink removes a stored turn from its parent, and the parent if nothing else refers to it.
func (x *Index[V]) unlink(n *node[V]) {
	parent, id := n.parent, x.previous(n)
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
		x.release(parent, id)
	}
}

// id returns the ID of a turn that is stored or has children.
func (x *Index[V]) id(n *node[V]) string {
	if !n.stored() {
		return x.previous(n.firstChild)
	}
	id, _ := x.names(n.value)
	return id
}

// previous returns the ID of the parent of a stored turn, empty for a root.
func (x *Index[V]) previous(n *node[V]) string {
	_, previous := x.names(n.value)
	return previous
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
		ids = append(ids, x.id(n))
	}
	return ids
}

// broken returns the first rule that the walk from n breaks.
func (x *Index[V]) broken(n *node[V]) Rule {
	switch {
	case n.stop != nil && int(n.distance) < x.maxDepth:
		return n.broken
	case n.stop != nil || int(n.depth) > x.maxDepth:
		return DepthExceeded
	}
	return Resolved
}

// inherit computes the position of a node that is not on a cycle from its parent's, without the lineage: see inheritLineage.
func (n *node[V]) inherit() position[V] {
	p := position[V]{lineage: n.lineage, unreadable: !n.stored() || n.continued != Resolved || n.parent != nil && n.parent.unreadable}
	switch {
	case !n.stored():
	case n.parent == nil:
		p.root, p.depth = n, 1
	case n.parent.root != nil:
		p.root, p.depth = n.parent.root, n.parent.depth+1
	}
	switch {
	case n.own != Resolved:
		p.stop, p.broken = n, n.own
	case n.parent != nil && n.parent.stop != nil:
		p.stop, p.broken, p.distance = n.parent.stop, n.parent.broken, n.parent.distance+1
	}
	return p
}

// inheritLineage computes the lineage of a node from its parent's, given the node's root.
func (x *Index[V]) inheritLineage(n, root *node[V]) uint64 {
	switch {
	case root == nil:
		return 0
	case n.parent == nil:
		return Lineage(0, x.identity(n.value))
	}
	return Lineage(n.parent.lineage, x.identity(n.value))
}

// complete returns the lineage if the turns can be read, otherwise 0.
func (p position[V]) complete() uint64 {
	if p.unreadable {
		return 0
	}
	return p.lineage
}

// Lineage returns the lineage of a turn. That of the parent is 0 for a root. It mixes the bits as SplitMix64 does, so the lineage depends on
// every turn and on their order.
func Lineage(parent, identity uint64) uint64 {
	z := parent + identity
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
