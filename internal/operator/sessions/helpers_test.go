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

package sessions

import (
	"encoding/json"
	"fmt"

	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/testutil/testsession"
)

// object returns a completed session of the namespace "ns".
func object(id, previous string, resourceVersion int) *v1alpha1.ResponseSession {
	o := testsession.Make("ns", id).After(previous).Obj()
	o.Spec.Request, o.Spec.Response = nil, nil // the view keeps no bodies
	o.UID, o.Generation, o.ResourceVersion = types.UID("uid-of-"+o.Name), 1, fmt.Sprint(resourceVersion)
	return o
}

// in returns a session as one of another namespace.
func in(namespace string, o *v1alpha1.ResponseSession) *v1alpha1.ResponseSession {
	o.Namespace = namespace
	return o
}

func deleting(o *v1alpha1.ResponseSession) *v1alpha1.ResponseSession {
	o.DeletionTimestamp = new(metav1.Unix(1_800_000_000, 0))
	return o
}

// add and remove feed the view an event of a watch, and wait until it was applied.
func add(s *store, o *v1alpha1.ResponseSession) {
	must(s.Add(watched(s, o)))
	s.feeds.wait()
}

func remove(s *store, o *v1alpha1.ResponseSession) {
	must(s.Delete(watched(s, o)))
	s.feeds.wait()
}

// watched returns an object as the reflector passes it on.
func watched(s *store, o *v1alpha1.ResponseSession) any {
	return newItem(NewRecord(encoded(o), (*View)(s).known))
}

func replace(s *store, resourceVersion int, objects ...*v1alpha1.ResponseSession) {
	var list []any
	for i, o := range objects {
		if i%2 == 0 {
			list = append(list, watched(s, o)) // as in a list
		} else {
			list = append(list, record(o, nil)) // as in a streamed list
		}
	}
	must(s.Replace(list, fmt.Sprint(resourceVersion)))
}

// encoded returns an object as the API server sends it.
func encoded(o *v1alpha1.ResponseSession) gjson.Result {
	raw, err := json.Marshal(o)
	must(err)
	return gjson.ParseBytes(raw)
}

// record returns the record of an object, given its current record.
func record(o *v1alpha1.ResponseSession, known *Record) *Record {
	return NewRecord(encoded(o), func(string, string) *Record { return known })
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// eventsOf returns what can happen to the sessions that are stored, by object name, each with the events that the view receives. draw
// returns the next version of a session.
func eventsOf(s *store, stored map[string]*v1alpha1.ResponseSession, draw func(*rapid.T) *v1alpha1.ResponseSession) map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"save": func(t *rapid.T) {
			o := draw(t)
			stored[o.Name] = o
			add(s, o)
		},
		"write a status": func(t *rapid.T) {
			o := draw(t)
			before := stored[o.Name]
			if before == nil {
				t.Skip("the session does not exist")
			}
			written := before.DeepCopy()
			written.ResourceVersion = o.ResourceVersion
			written.Status.RootResponseID = o.ResourceVersion
			(*View)(s).Observe("ns", o.Name, func(known *Record) *Record { // ahead of the watch, without the size
				next := *known.WithStatus(&written.Status)
				next.ResourceVersion = ParseResourceVersion(written.ResourceVersion)
				return &next
			})
			stored[o.Name] = written
			add(s, written)
		},
		"delete": func(t *rapid.T) {
			o := draw(t)
			delete(stored, o.Name)
			remove(s, o)
		},
	}
}
