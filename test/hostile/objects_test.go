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

package hostile_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
)

// TestUndecodableObjects: objects that the API server stores but Go cannot decode affect only their own turns, including
// when the operator lists everything again, and get correct verdicts once they are repaired.
func TestUndecodableObjects(t *testing.T) {
	attacker, victim := env.NewNamespace(t), env.NewNamespace(t)
	// Objects as they could be stored before the CRD had a pattern for times.
	const unreadable, pattern = v1alpha1.ReasonSnapshotUnreadable, `RFC 3339`
	restore := withoutTimePattern(t)
	objects := map[string]struct{ fields, reason, message string }{
		"lower-case z":      {`"createdAt":"2026-01-01t00:00:00z"`, unreadable, pattern},
		"lower-case t":      {`"createdAt":"2026-01-01t00:00:00Z"`, unreadable, pattern},
		"offset of 99:99":   {`"completedAt":"2026-01-01T00:00:00+99:99"`, unreadable, pattern},
		"immutable":         {`"createdAt":"2026-01-01t00:00:00z","immutable":true`, unreadable, pattern},
		"to be deleted":     {`"createdAt":"2026-01-01t00:00:00z"`, unreadable, pattern},
		"nested 2,000 deep": {`"request":{"input":[` + nested(2_000) + `]}`, unreadable, "nested"},
		"nested 9,990 deep": {`"metadata":` + nested(9_990), v1alpha1.ReasonResolved, ""},
		"nested 9,993 deep": {`"request":{"input":` + nested(9_991) + `}`, unreadable, "nested"},
	}
	ids := map[string]string{}
	for name, tc := range objects {
		id := "resp_" + strings.ReplaceAll(strings.ReplaceAll(strings.ReplaceAll(name, " ", "-"), ",", ""), ":", "")
		ids[name] = strings.ToLower(id)
		testutil.Eventually(t, func(context.Context) error { // the API server observes the CRD change with a short delay
			err := create(t, attacker, session(ids[name], tc.fields))
			if apierrors.IsAlreadyExists(err) {
				return nil
			}
			return err
		})
	}
	restore()
	createDeepest(t, attacker, "resp_deepest")
	for _, restart := range []bool{false, true} {
		if restart {
			restartOperator(t)
		}
		wantUnharmed(t, victim)
		for name, tc := range objects {
			wantReason(t, attacker, ids[name], tc.reason, tc.message)
		}
		wantReason(t, attacker, "resp_deepest", v1alpha1.ReasonResolved, "")
	}

	// The library reports objects that it cannot decode.
	turns := env.Store.InNamespace(attacker)
	if _, err := turns.Get(t.Context(), ids["lower-case z"]); !errors.Is(err, store.ErrUnreadable) {
		t.Errorf("Get: %v, want ErrUnreadable", err)
	}
	if _, err := turns.Resolve(t.Context(), ids["lower-case z"], store.ResolveOptions{}); !errors.Is(err, store.ErrUnreadable) {
		t.Errorf("Resolve: %v, want ErrUnreadable", err)
	}

	// So does a gateway, which deletes them, too, and serves others.
	gateway := startGateway(&arena{TB: t}, attacker, victim)
	send := func(key, method, path, body, want string) {
		t.Helper()
		if answer, _, err := gateway.send(t.Context(), key, method, "/v1/responses"+path, body); err != nil || !strings.HasSuffix(answer, want) {
			t.Errorf("%s %s: got %s and %v, want %s", method, path, answer, err, want)
		}
	}
	id := "/" + ids["to be deleted"]
	send(attacker, http.MethodGet, id, "", string(store.CodeUnreadable))
	send(attacker, http.MethodGet, id+"/input_items", "", string(store.CodeUnreadable))
	send(attacker, http.MethodPost, "", fmt.Sprintf(`{"model":"scripted","input":"x","previous_response_id":%q}`, id[1:]), string(store.CodeUnreadable))
	send(victim, http.MethodPost, "", `{"model":"scripted","input":"x"}`, "200")
	send(attacker, http.MethodDelete, id, "", "200")

	repair := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"createdAt":"2026-01-01T00:00:00Z"}}`))
	object := &v1alpha1.ResponseSession{}
	object.Namespace, object.Name = attacker, v1alpha1.ObjectName(ids["lower-case z"])
	if err := env.Client.Patch(t.Context(), object, repair); err != nil {
		t.Fatal(err)
	}
	wantReason(t, attacker, ids["lower-case z"], v1alpha1.ReasonResolved, "")

	// So does the library, under the rules for every overwrite.
	overwrite := store.SaveOptions{Overwrite: true}
	for _, name := range []string{"lower-case t", "offset of 99:99", "nested 2,000 deep", "nested 9,993 deep"} {
		if err := turns.Save(t.Context(), testturn.Make(ids[name], ""), store.SaveOptions{}); !errors.Is(err, store.ErrConflict) {
			t.Errorf("%s, without Overwrite: %v, want ErrConflict", name, err)
		}
		moved := testturn.Make(ids[name], "resp_elsewhere")
		if err := turns.Save(t.Context(), moved, overwrite); !errors.Is(err, store.ErrConflict) {
			t.Errorf("%s, with another parent: %v, want ErrConflict", name, err)
		}
		if err := turns.Save(t.Context(), testturn.Make(ids[name], ""), overwrite); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		wantReason(t, attacker, ids[name], v1alpha1.ReasonResolved, "")
		if _, err := turns.Get(t.Context(), ids[name]); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := turns.Save(t.Context(), testturn.Make(ids["immutable"], ""), overwrite); !errors.Is(err, store.ErrConflict) {
		t.Errorf("immutable: %v, want ErrConflict", err)
	}
	if err := turns.Delete(t.Context(), ids["immutable"], store.DeleteOptions{}); err != nil {
		t.Errorf("immutable: %v", err)
	}
	testutil.Eventually(t, func(ctx context.Context) error {
		_, err := turns.Get(ctx, ids["immutable"])
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		return fmt.Errorf("the deleted session is still stored: %w", err)
	})
	wantUnharmed(t, victim)
}

// createDeepest creates the turn with the most deeply nested metadata that the API server accepts. A list of it is too deep for Go.
func createDeepest(t *testing.T, namespace, id string) {
	t.Helper()
	depth := 10_000
	err := create(t, namespace, session(id, `"metadata":`+nested(depth)))
	for ; err != nil && depth > 9_990; depth-- {
		err = create(t, namespace, session(id, `"metadata":`+nested(depth-1)))
	}
	if err != nil {
		t.Fatal(err)
	}
	raw, err := kubeclient.GetRaw(t.Context(), sessions, kubeclient.Sessions, types.NamespacedName{Namespace: namespace, Name: v1alpha1.ObjectName(id)})
	if err != nil {
		t.Fatal(err)
	}
	list := map[string]any{}
	if err := json.Unmarshal(fmt.Appendf(nil, `{"items":[%s]}`, raw), &list); err == nil {
		t.Errorf("Go decodes a list of metadata that is nested %d deep", depth)
	}
}

// TestTimePattern: the API server rejects times that Go cannot decode.
func TestTimePattern(t *testing.T) {
	namespace := env.NewNamespace(t)
	i := 0
	for value, want := range map[string]bool{
		"2026-01-01T00:00:00Z":             true,
		"2026-01-01T23:59:59.123456+05:30": true,
		"2026-01-01T00:00:00-23:59":        true,
		"2026-01-01t00:00:00Z":             false,
		"2026-01-01T00:00:00z":             false,
		"2026-01-01T00:00:00Z ":            false,
		"2026-01-01T00:00:00+24:00":        false,
		"2026-01-01T00:00:60Z":             false,
		"2026-01-01T24:00:00Z":             false,
		"2026-02-30T00:00:00Z":             false,
		"2026-01-01 00:00:00Z":             false,
		"2026-01-01T00:00:00":              false,
	} {
		for _, field := range []string{"createdAt", "completedAt"} {
			i++
			err := create(t, namespace, session(fmt.Sprintf("resp_%d", i), fmt.Sprintf("%q:%q", field, value)))
			if (err == nil) != want || err != nil && !apierrors.IsInvalid(err) {
				t.Errorf("%s %q: got %v, want it to be accepted: %t", field, value, err, want)
			}
		}
	}
}

// session returns a session with additional fields of the spec, as JSON.
func session(id, fields string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"sessions.catena.dev/v1alpha1","kind":"ResponseSession","metadata":{"name":%q},`+
		`"spec":{"responseID":%q,"responseStatus":"completed",%s}}`, v1alpha1.ObjectName(id), id, fields)
}

// nested returns an object with the given depth of nesting.
func nested(depth int) string {
	return strings.Repeat(`{"a":`, depth-1) + "{}" + strings.Repeat("}", depth-1)
}

// withoutTimePattern removes the pattern of times from the CRD, until restore is called.
func withoutTimePattern(t testing.TB) (restore func()) {
	t.Helper()
	set := func(patterns map[string]string) {
		t.Helper()
		testutil.Eventually(t, func(ctx context.Context) error {
			crd := &apiextensionsv1.CustomResourceDefinition{}
			if err := env.Client.Get(ctx, client.ObjectKey{Name: "responsesessions.sessions.catena.dev"}, crd); err != nil {
				return err
			}
			spec, before := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"], map[string]string{}
			for name, pattern := range patterns {
				field := spec.Properties[name]
				before[name], field.Pattern = field.Pattern, pattern
				spec.Properties[name] = field
			}
			if err := env.Client.Update(ctx, crd); err != nil {
				return err
			}
			maps.Copy(patterns, before)
			return nil
		})
	}
	patterns := map[string]string{"createdAt": "", "completedAt": ""}
	set(patterns)
	if patterns["createdAt"] == "" {
		t.Fatal("the CRD has no pattern for times")
	}
	return func() { set(patterns) }
}
