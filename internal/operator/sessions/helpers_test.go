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
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
)

// object returns a completed session of the namespace "ns".
func object(id, previous string, resourceVersion int) *v1alpha1.ResponseSession {
	name := v1alpha1.ObjectName(id)
	return &v1alpha1.ResponseSession{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID("uid-of-" + name), Generation: 1,
			ResourceVersion: fmt.Sprint(resourceVersion),
		},
		Spec: v1alpha1.ResponseSessionSpec{ResponseID: id, PreviousResponseID: previous, ResponseStatus: "completed"},
	}
}

func deleting(o *v1alpha1.ResponseSession) *v1alpha1.ResponseSession {
	o.DeletionTimestamp = new(metav1.Unix(1_800_000_000, 0))
	return o
}

func add(s *store, o *v1alpha1.ResponseSession)    { must(s.Add(o)) }
func remove(s *store, o *v1alpha1.ResponseSession) { must(s.Delete(o)) }

func replace(s *store, resourceVersion int, objects ...*v1alpha1.ResponseSession) {
	var list []any
	for i, o := range objects {
		if i%2 == 0 {
			list = append(list, o) // as a list brings it
		} else {
			list = append(list, NewRecord(o, nil)) // as a streamed list brings it
		}
	}
	must(s.Replace(list, fmt.Sprint(resourceVersion)))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
