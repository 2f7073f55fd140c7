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

package backup

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
)

// fakeAPI is an API server that stores objects in memory, as JSON values, for tests with many sessions. test/backup has those with a
// real one.
type fakeAPI struct {
	// before, if set, is called before each request, and may answer it.
	before func(w http.ResponseWriter, r *http.Request) (answered bool)

	mu      sync.Mutex
	objects map[string]map[string]any // by RESOURCE/NAMESPACE/NAME
	uids    int
}

type tester interface {
	Helper()
	Fatalf(format string, args ...any)
}

// newFake returns an API server and its client configuration. Requests do not pass through a network.
func newFake() (*fakeAPI, *rest.Config) {
	api := &fakeAPI{objects: map[string]map[string]any{}}
	config := &rest.Config{Host: "http://fake", QPS: -1}
	config.Wrap(func(http.RoundTripper) http.RoundTripper { return api })
	return api, config
}

// RoundTrip implements http.RoundTripper.
func (f *fakeAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	if err := r.Context().Err(); err != nil { // the response is lost
		return nil, err
	}
	return w.Result(), nil
}

// openFake opens the cluster of a fake.
func openFake(t testing.TB, config *rest.Config) *Cluster {
	t.Helper()
	c, err := Open(t.Context(), Options{
		Config: config, MaxTurnBytes: DefaultMaxTurnBytes, Concurrency: 4, APITimeout: time.Minute,
		Problem: func(object, problem string) { t.Logf("%s: %s", object, problem) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f.before != nil && f.before(w, r) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	path := strings.Split(strings.TrimPrefix(r.URL.Path, "/apis/sessions.catena.dev/v1alpha1/namespaces/"), "/")
	switch {
	case r.URL.Path == "/version":
		respond(w, http.StatusOK, map[string]any{})
	case r.URL.Path == "/api/v1/namespaces/kube-system":
		respond(w, http.StatusOK, map[string]any{
			"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": map[string]any{"uid": "fake"},
		})
	case len(path) == 2 && r.Method == http.MethodGet:
		f.list(w, r, path[1]+"/"+path[0]+"/")
	case len(path) == 2 && r.Method == http.MethodPost:
		f.create(w, r, path[1], path[0])
	case len(path) == 3:
		f.object(w, r, path[1], path[0], path[2])
	default:
		refuse(w, apierrors.NewBadRequest("unexpected request"))
	}
}

// list returns a page. The token of the next one is the last name.
func (f *fakeAPI) list(w http.ResponseWriter, r *http.Request, prefix string) {
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	items, next := []any{}, ""
	for _, key := range slices.Sorted(maps.Keys(f.objects)) {
		name, found := strings.CutPrefix(key, prefix)
		if !found || name <= r.URL.Query().Get("continue") || !selected(f.objects[key], r.URL.Query().Get("fieldSelector")) {
			continue
		}
		if len(items) == limit {
			break
		}
		items, next = append(items, f.objects[key]), name
	}
	if len(items) < limit {
		next = ""
	}
	respond(w, http.StatusOK, map[string]any{"items": items, "metadata": map[string]any{"continue": next, "resourceVersion": "1"}})
}

// selected reports whether a field of a spec has the value of a selector, if there is one.
func selected(object map[string]any, selector string) bool {
	field, value, _ := strings.Cut(strings.TrimPrefix(selector, "spec."), "=")
	return field == "" || object["spec"].(map[string]any)[field] == value
}

func (f *fakeAPI) create(w http.ResponseWriter, r *http.Request, resource, namespace string) {
	var object map[string]any
	if err := json.NewDecoder(r.Body).Decode(&object); err != nil {
		refuse(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	metadata := object["metadata"].(map[string]any)
	key := resource + "/" + namespace + "/" + metadata["name"].(string)
	if f.objects[key] != nil {
		refuse(w, apierrors.NewAlreadyExists(schema.GroupResource{Resource: resource}, metadata["name"].(string)))
		return
	}
	f.uids++
	metadata["uid"], metadata["resourceVersion"], metadata["namespace"] = fmt.Sprint("uid-", f.uids), fmt.Sprint(f.uids), namespace
	if r.URL.Query().Get("dryRun") == "" {
		f.objects[key] = object
	}
	respond(w, http.StatusCreated, metadataOf(object))
}

func (f *fakeAPI) object(w http.ResponseWriter, r *http.Request, resource, namespace, name string) {
	key := resource + "/" + namespace + "/" + name
	object := f.objects[key]
	switch {
	case object == nil:
		refuse(w, apierrors.NewNotFound(schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: resource}, name))
	case r.Method == http.MethodDelete:
		delete(f.objects, key)
		respond(w, http.StatusOK, map[string]any{"apiVersion": "v1", "kind": "Status", "status": "Success"})
	case strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata"):
		respond(w, http.StatusOK, metadataOf(object))
	default:
		respond(w, http.StatusOK, object)
	}
}

func metadataOf(object map[string]any) map[string]any {
	return map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": object["metadata"]}
}

func respond(w http.ResponseWriter, code int, object any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Date", time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Format(http.TimeFormat))
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(object); err != nil {
		panic(http.ErrAbortHandler)
	}
}

func refuse(w http.ResponseWriter, err *apierrors.StatusError) {
	status := err.Status()
	status.APIVersion, status.Kind = "v1", "Status"
	respond(w, int(status.Code), status)
}

// put stores an object, with an owner that does not exist. A summary belongs to the conversation with the UID o.owner.
func (f *fakeAPI) put(namespace string, o *Object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var spec map[string]any
	if err := json.Unmarshal(o.Spec, &spec); err != nil {
		panic(err)
	}
	f.uids++
	owners := []any{map[string]any{"uid": "old"}}
	if o.owner != "" {
		owners = append(owners, map[string]any{"kind": v1alpha1.ConversationKind, "uid": o.owner})
	}
	metadata := map[string]any{
		"name": o.Name, "uid": fmt.Sprint("uid-", f.uids), "labels": o.Labels, "annotations": o.Annotations,
		"ownerReferences": owners, "managedFields": []any{map[string]any{}},
	}
	f.objects[kinds[o.kind].resource+"/"+namespace+"/"+o.Name] = map[string]any{
		"metadata": metadata, "spec": spec, "status": map[string]any{"depth": 1},
	}
}

// session returns the metadata of a stored session, and nil if it does not exist.
func (f *fakeAPI) session(t tester, namespace, name string) *metav1.ObjectMeta {
	t.Helper()
	return f.metadata(t, sessionKind, namespace, name)
}

// metadata returns the metadata of a stored object, and nil if it does not exist.
func (f *fakeAPI) metadata(t tester, kind kind, namespace, name string) *metav1.ObjectMeta {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	object := f.objects[kinds[kind].resource+"/"+namespace+"/"+name]
	if object == nil {
		return nil
	}
	text, err := json.Marshal(object["metadata"])
	metadata := &metav1.ObjectMeta{}
	if err == nil {
		err = json.Unmarshal(text, metadata)
	}
	if err != nil {
		t.Fatalf("unable to decode %s: %v", name, err)
	}
	return metadata
}

// count returns the number of stored objects of a resource.
func (f *fakeAPI) count(resource string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	count := 0
	for key := range f.objects {
		if strings.HasPrefix(key, resource+"/") {
			count++
		}
	}
	return count
}
