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

import "slices"

// change describes a change of a node, before the node and its descendants are recomputed.
type change struct {
	// fresh is set if the node had no verdict before.
	fresh bool
	// moved is set if the node has another parent than before, or no longer has one.
	moved bool
	// replaced is set if the node is another turn than before, with the same ID.
	replaced bool
	// before is the ancestry that a moved node had: the depth limits of its descendants may be at other turns now.
	before []string
}

// recompute updates n and its descendants and returns the values of the stored turns whose verdict has changed.
func (x *Index[V]) recompute(n *node[V], c change) []V {
	cyclic := n.cyclic
	if c.moved {
		cyclic = n.closesCycle()
	}
	var after []string
	if c.before != nil {
		after = x.ancestry(n)
	}
	var onCycle map[*node[V]]position[V]
	if cyclic {
		onCycle = n.cyclePositions()
	}

	var changed []V
	below := 0 // distance from n
	for m := n; m != nil; {
		x.judged++
		p, cyclicNow := onCycle[m]
		if !cyclicNow {
			p = m.inherit()
		}
		if c.moved || c.replaced {
			p.lineage = x.inheritLineage(m, p.root)
		}
		turned := m.stored() && m.cyclic != cyclicNow
		m.cyclic = cyclicNow
		old := m.position()
		same := p == old
		if x.move(m, &old, &p, c.fresh && m == n) || turned || x.limitMoved(m, below, c.before, after) {
			changed = append(changed, m.value)
		}
		// If a node keeps its position, so do its descendants, except that a cycle leads back above n, and that a depth
		// limit may have moved.
		descend := !same || cyclic || c.moved
		m, below = m.next(n, below, descend)
	}
	return changed
}

// move gives a node its position and reports whether that changed its verdict. It ignores the turn at which a chain exceeds
// the depth limit: see limitMoved.
func (x *Index[V]) move(m *node[V], old, p *position[V], fresh bool) bool {
	oldRule := x.broken(m)
	m.setPosition(p)
	if !m.stored() {
		return false
	}
	newRule := x.broken(m)
	x.counts[newRule]++
	if fresh {
		return true
	}
	x.counts[oldRule]--
	return oldRule != newRule || old.root != p.root || old.depth != p.depth || old.complete() != p.complete() ||
		(newRule != DepthExceeded && old.stop != p.stop)
}

// limitMoved reports whether m, whose chain is too long, meets the depth limit at another turn than before.
func (x *Index[V]) limitMoved(m *node[V], below int, before, after []string) bool {
	above := x.maxDepth - below
	if above < 0 || above >= len(before) || above >= len(after) {
		return false
	}
	return x.broken(m) == DepthExceeded && before[above] != after[above]
}

// next returns the node after n in the preorder of the tree below top, and its distance from top.
func (n *node[V]) next(top *node[V], below int, descend bool) (*node[V], int) {
	if descend {
		if child := n.firstChild.except(top); child != nil {
			return child, below + 1
		}
	}
	for ; n != top; n, below = n.parent, below-1 {
		if sibling := n.nextSibling.except(top); sibling != nil {
			return sibling, below
		}
	}
	return nil, 0
}

// except skips top, which is a child of its own descendant if it is on a cycle.
func (n *node[V]) except(top *node[V]) *node[V] {
	if n == top && n != nil {
		return n.nextSibling
	}
	return n
}

// closesCycle reports whether n's parent is n or one of its descendants. It searches the descendants, which are recomputed
// anyway, because there may be many more ancestors.
func (n *node[V]) closesCycle() bool {
	if n.parent == nil {
		return false
	}
	below := 0
	for m := n; m != nil; m, below = m.next(n, below, true) {
		if m == n.parent {
			return true
		}
	}
	return false
}

// cyclePositions computes the positions of the nodes on n's cycle: each stops at the nearest turn that breaks a rule by
// itself, or at itself after one round if no turn does.
func (n *node[V]) cyclePositions() map[*node[V]]position[V] {
	cycle := []*node[V]{n}
	for m := n.parent; m != n; m = m.parent {
		cycle = append(cycle, m)
	}
	positions := make(map[*node[V]]position[V], len(cycle))
	first := slices.IndexFunc(cycle, func(m *node[V]) bool { return m.own != Resolved })
	if first < 0 {
		for _, m := range cycle {
			positions[m] = position[V]{stop: m, broken: CycleDetected, distance: int32(len(cycle)), unreadable: true}
		}
		return positions
	}
	// From the broken turn on, against the direction of the walk, so that each finds its parent's position.
	var last position[V]
	for i := range cycle {
		m := cycle[(first-i+len(cycle))%len(cycle)]
		if m.own != Resolved {
			last = position[V]{stop: m, broken: m.own, unreadable: true}
		} else {
			last.distance++
		}
		positions[m] = last
	}
	return positions
}
