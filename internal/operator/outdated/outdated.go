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

// Package outdated keeps which objects have an ownerReference to another version of the API.
package outdated

// Set has objects of one namespace by name, with their resource versions. Those that are settled, because their owners do not exist, need not
// be read again until they change. The zero value is empty. A Set is not safe for concurrent use.
type Set struct {
	open, settled map[string]string
}

// Put adds an object, or replaces it by another version.
func (s *Set) Put(name, version string) {
	if s.open == nil {
		s.open, s.settled = map[string]string{}, map[string]string{}
	}
	delete(s.settled, name)
	s.open[name] = version
}

// Delete removes an object, if the set has it.
func (s *Set) Delete(name string) {
	delete(s.open, name)
	delete(s.settled, name)
}

// Len returns the number of objects.
func (s *Set) Len() int { return len(s.open) + len(s.settled) }

// Open calls a function with the names and versions of objects that are not settled, at most limit of them.
func (s *Set) Open(limit int, do func(name, version string)) {
	for name, version := range s.open {
		if limit--; limit < 0 {
			return
		}
		do(name, version)
	}
}

// SettleAs settles the versions of objects that another set has settled.
func (s *Set) SettleAs(other *Set) {
	for name, version := range other.settled {
		s.Settle(name, version)
	}
}

// Settle marks a version of an object as settled. It does nothing if the set has another version, or does not have the object.
func (s *Set) Settle(name, version string) {
	if known, found := s.open[name]; found && known == version {
		delete(s.open, name)
		s.settled[name] = version
	}
}
