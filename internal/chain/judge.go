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

// judgement is one change of a node, on its way down to the node's descendants.
type judgement struct {
	// fresh: the node has had no verdict before.
	fresh bool
	// moved: the node has another parent than before, or none.
	moved bool
	// before is the ancestry that a moved node had, after that its descendants' depth limits may lie elsewhere.
	before []string
}

// judge recomputes n and its descendants and returns the IDs of the stored turns whose verdict changed.
func (x *Index[V]) judge(n *node[V], j judgement) []string {
	cyclic := n.cyclic
	if j.moved {
		cyclic = n.closesCycle()
	}
	var after []string
	if j.before != nil {
		after = x.ancestry(n)
	}
	var places map[*node[V]]place[V]
	if cyclic {
		places = n.cyclePlaces()
	}

	var changed []string
	below := 0 // distance from n
	for m := n; m != nil; {
		p, onCycle := places[m]
		if !onCycle {
			p = m.inherit()
		}
		turned := m.stored() && m.cyclic != onCycle
		m.cyclic = onCycle
		same := p == m.place
		if x.place(m, p, j.fresh && m == n) || turned || x.limitMoved(m, below, j.before, after) {
			changed = append(changed, m.id)
		}
		// A node in the same place has its descendants in the same places, but a cycle leads back above n, and a depth
		// limit may have moved.
		descend := !same || cyclic || j.moved
		m, below = m.next(n, below, descend)
	}
	return changed
}

// place gives a node its place and reports whether that changed its verdict, the turn at the depth limit left aside.
func (x *Index[V]) place(m *node[V], p place[V], fresh bool) bool {
	oldPlace, oldFault := m.place, x.fault(m)
	m.place = p
	if !m.stored() {
		return false
	}
	newFault := x.fault(m)
	x.reasons[newFault]++
	if fresh {
		return true
	}
	x.reasons[oldFault]--
	return oldFault != newFault || oldPlace.root != p.root || oldPlace.depth != p.depth ||
		(newFault != faultDepth && oldPlace.stop != p.stop)
}

// limitMoved reports whether m, which is too deep, meets the depth limit at another turn than before.
func (x *Index[V]) limitMoved(m *node[V], below int, before, after []string) bool {
	above := x.maxDepth - below
	if above < 0 || above >= len(before) || above >= len(after) {
		return false
	}
	return x.fault(m) == faultDepth && before[above] != after[above]
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

// except skips top, which stands among the children of its own descendant where it is on a cycle.
func (n *node[V]) except(top *node[V]) *node[V] {
	if n == top && n != nil {
		return n.nextSibling
	}
	return n
}

// closesCycle reports whether n's parent is n or one of its descendants. They are recomputed anyway, so it looks there
// and not among the ancestors, of which there may be many more.
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

// cyclePlaces computes the places of the nodes on n's cycle: each stops at the nearest turn with a fault of its own, or,
// where there is none, at itself after a round.
func (n *node[V]) cyclePlaces() map[*node[V]]place[V] {
	cycle := []*node[V]{n}
	for m := n.parent; m != n; m = m.parent {
		cycle = append(cycle, m)
	}
	places := make(map[*node[V]]place[V], len(cycle))
	first := slices.IndexFunc(cycle, func(m *node[V]) bool { return m.own != faultNone })
	if first < 0 {
		for _, m := range cycle {
			places[m] = place[V]{stop: m, stopFault: faultCycle, distance: int32(len(cycle))}
		}
		return places
	}
	// From the fault on, against the direction of the walk, so that each finds its parent's place.
	var last place[V]
	for i := range cycle {
		m := cycle[(first-i+len(cycle))%len(cycle)]
		if m.own != faultNone {
			last = place[V]{stop: m, stopFault: m.own}
		} else {
			last.distance++
		}
		places[m] = last
	}
	return places
}
