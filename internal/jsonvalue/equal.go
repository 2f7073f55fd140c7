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

package jsonvalue

import (
	"bytes"
	"cmp"
	"hash/maphash"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Equal reports whether two bodies, each JSON or empty, have the same bytes or the same value. If one of them would not
// survive in a custom resource, only the bytes are compared. It does not decode the bodies, and uses at most EqualMemory. Its
// time does not depend on how deeply the values are nested.
func Equal(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	nodes := Nodes(Text(a))
	if nodes != Nodes(Text(b)) {
		return false
	}
	s := scan{keys: make([]key, 0, nodes/2)} // each key takes a colon, and a comma or the opening bracket
	objects, keys := 0, 0
	if !s.survives(a, func(_ int, of []key) bool {
		if len(of) > 1 {
			objects++
			keys += len(of)
		}
		return true
	}) {
		return false
	}
	// The index of b is as large, unless the bodies differ.
	x := &index{raw: Text(b), objects: make([]indexed, 0, objects), keys: make([]key, 0, keys)}
	if !s.survives(b, x.add) {
		return false
	}
	x.sort()
	_, _, same := x.equal(Text(a), skip(Text(a), 0), skip(Text(b), 0))
	return same
}

// EqualMemory returns the most memory that Equal needs at once to compare a body with another: little for long texts, and more
// than the body for many short members.
func EqualMemory(body []byte) int64 {
	// The smallest object in the index, with its keys, has 13 bytes and 4 nodes. It takes 28 bytes of the index, and 16 of the scan.
	return min(4*int64(len(body)), 12*int64(Nodes(Text(body))))
}

// index finds the keys of the objects in a value that survives. So the value can be compared with one whose keys have another
// order, without a search for the ends of the values in between, which would take a pass for each level of nesting.
type index struct {
	raw string
	// objects are the objects with more than one key.
	objects []indexed
	// keys are the keys of these objects, sorted for each of them.
	keys []key
}

// indexed is the offset of an object, and which of the index's keys it has.
type indexed struct{ begin, first, count int32 }

// key is a key of an object: the hash of its name, and in the low 32 bits the offset at which it begins. Keys are much faster to
// sort by hashes than by names.
type key uint64

// seed is random, so that no client can choose names with the same hash.
var seed = maphash.MakeSeed()

func newKey(name string, offset int) key {
	hash := uint64(0)
	if content := name[1 : len(name)-1]; strings.IndexByte(content, '\\') < 0 {
		hash = maphash.String(seed, content)
	} else {
		var h maphash.Hash
		h.SetSeed(seed)
		for content != "" {
			var c rune
			c, content = character(content)
			var buffer [utf8.UTFMax]byte
			_, _ = h.Write(utf8.AppendRune(buffer[:0], c)) // never fails
		}
		hash = h.Sum64()
	}
	return key(hash<<32 | uint64(offset))
}

func (k key) hash() uint32 { return uint32(k >> 32) }

func (k key) offset() int { return int(uint32(k)) }

// add adds an object, and reports whether there was room for it.
func (x *index) add(object int, keys []key) bool {
	if len(keys) < 2 {
		return true
	}
	if len(x.objects) == cap(x.objects) || len(x.keys)+len(keys) > cap(x.keys) {
		return false
	}
	x.objects = append(x.objects, indexed{int32(object), int32(len(x.keys)), int32(len(keys))})
	x.keys = append(x.keys, keys...)
	return true
}

// sort prepares the index for keysOf.
func (x *index) sort() {
	slices.SortFunc(x.objects, func(a, b indexed) int { return cmp.Compare(a.begin, b.begin) })
}

// keysOf returns the keys of an object. It stores a single key in one.
func (x *index) keysOf(object int, one *[1]key) []key {
	if i, found := slices.BinarySearchFunc(x.objects, int32(object), func(o indexed, begin int32) int { return cmp.Compare(o.begin, begin) }); found {
		o := x.objects[i]
		return x.keys[o.first:][:o.count]
	}
	begin := skip(x.raw, object+1)
	if x.raw[begin] == '}' {
		return nil
	}
	one[0] = newKey(x.raw[begin:endOfString(x.raw, begin)], begin)
	return one[:]
}

// valueOf returns the offset of the value of the key that has a name, or -1.
func (x *index) valueOf(name string, keys []key) int {
	hash := newKey(name, 0)
	i, _ := slices.BinarySearch(keys, hash)
	for ; i < len(keys) && keys[i].hash() == hash.hash(); i++ {
		if own := x.raw[keys[i].offset():]; equalStrings(own, name) {
			return skip(x.raw, keys[i].offset()+endOfString(own, 0))
		}
	}
	return -1
}

// equal compares the value that begins at i in a, which survives, with the one that begins at j in the index. If they are equal,
// it also returns the indexes after them.
func (x *index) equal(a string, i, j int) (endA, endB int, same bool) {
	switch restA, restB := a[i:], x.raw[j:]; {
	case IsObject(restA) && IsObject(restB):
		return x.equalObjects(a, i, j)
	case IsList(restA) && IsList(restB):
		return x.equalLists(a, i, j)
	}
	endA, endB = endOfValue(a, i), endOfValue(x.raw, j)
	return endA, endB, equalScalars(a[i:endA], x.raw[j:endB])
}

// equalObjects is equal for objects. All keys of an object are different, so that two objects with as many keys are equal if each
// member of the one is in the other.
func (x *index) equalObjects(a string, i, j int) (endA, endB int, same bool) {
	var one [1]key
	keys, count, end := x.keysOf(j, &one), 0, j+1
	for i = skip(a, i+1); a[i] != '}'; i = skip(a, i) {
		name := a[i:endOfString(a, i)]
		value := x.valueOf(name, keys)
		if value < 0 {
			return 0, 0, false
		}
		if i, value, same = x.equal(a, skip(a, i+len(name)), value); !same {
			return 0, 0, false
		}
		end = max(end, value)
		count++
	}
	return i + 1, skip(x.raw, end) + 1, count == len(keys)
}

// equalLists is equal for lists.
func (x *index) equalLists(a string, i, j int) (endA, endB int, same bool) {
	i, j = skip(a, i+1), skip(x.raw, j+1)
	for a[i] != ']' && x.raw[j] != ']' {
		if i, j, same = x.equal(a, i, j); !same {
			return 0, 0, false
		}
		i, j = skip(a, i), skip(x.raw, j)
	}
	return i + 1, j + 1, a[i] == x.raw[j]
}

// equalScalars compares two values, of which at most one is an object or a list.
func equalScalars(a, b string) bool {
	switch {
	case IsString(a) && IsString(b):
		return equalStrings(a, b)
	case isNumber(a) && isNumber(b):
		return sameNumber(a, b)
	}
	return a == b
}

func isNumber(raw string) bool { return raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9' }

// equalStrings compares two JSON strings that survive, at the beginnings of a and b, without allocating memory.
func equalStrings(a, b string) bool {
	a, b = a[1:endOfString(a, 0)-1], b[1:endOfString(b, 0)-1]
	if strings.IndexByte(a, '\\') < 0 && strings.IndexByte(b, '\\') < 0 {
		return a == b
	}
	for a != "" && b != "" {
		var x, y rune
		x, a = character(a)
		y, b = character(b)
		if x != y {
			return false
		}
	}
	return a == b
}

// character returns the first character of the content of a JSON string that survives, and the rest.
func character(content string) (first rune, rest string) {
	if content[0] != '\\' {
		first, size := utf8.DecodeRuneInString(content)
		return first, content[size:]
	}
	escape, rest := content[1], content[2:]
	if i := strings.IndexByte("bfnrt", escape); i >= 0 {
		return rune("\b\f\n\r\t"[i]), rest
	}
	if escape != 'u' {
		return rune(escape), rest
	}
	first, rest = rune(codeUnit(rest)), rest[4:]
	if utf16.IsSurrogate(first) {
		first, rest = utf16.DecodeRune(first, rune(codeUnit(rest[2:]))), rest[6:]
	}
	return first, rest
}
