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

package kube_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testsession"
	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/driver"
	"github.com/catena-dev/catena/store/kube"
)

// schemas is the path of the schemas of spec and status in a CRD.
const schemas = "/spec/versions/0/schema/openAPIV3Schema/properties"

// kind is a kind whose CRD tests change.
type kind struct {
	resource, name string
	// required are the required fields of a spec.
	required map[string]any
}

var (
	sessionKind      = kind{kubeclient.Sessions, v1alpha1.ResponseSessionKind, map[string]any{"responseID": "probe", "responseStatus": "completed"}}
	conversationKind = kind{kubeclient.Conversations, v1alpha1.ConversationKind, map[string]any{"conversationID": "probe"}}
)

// change changes the CRD with a JSON patch until the end of the test. It waits until the API server accepts, or rejects, a spec field with the
// given value.
func (k kind) change(t *testing.T, patch, field string, value any, accepted bool) {
	t.Helper()
	crd := &unstructured.Unstructured{}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind("CustomResourceDefinition")
	crd.SetName(k.resource + "." + v1alpha1.GroupVersion.Group)
	if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(crd), crd); err != nil {
		t.Fatal(err)
	}
	before, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/spec/versions", "value": crd.Object["spec"].(map[string]any)["versions"]}})
	if err != nil {
		t.Fatal(err)
	}
	apply := func(patch string, accepted bool) {
		if err := env.Client.Patch(context.WithoutCancel(t.Context()), crd, client.RawPatch(types.JSONPatchType, []byte(patch))); err != nil {
			t.Fatal(err)
		}
		testutil.Eventually(t, func(ctx context.Context) error {
			if err := k.try(ctx, field, value); (err == nil) != accepted {
				return fmt.Errorf("the field %s: %w", field, err)
			}
			return nil
		})
	}
	apply(patch, accepted)
	t.Cleanup(func() { apply(string(before), !accepted) })
}

// try returns the error from creating an object with the given field, as a dry run.
func (k kind) try(ctx context.Context, field string, value any) error {
	spec := maps.Clone(k.required)
	spec[field] = value
	probe := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	probe.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(k.name))
	probe.SetNamespace(metav1.NamespaceDefault)
	probe.SetName("probe")
	return env.Client.Create(ctx, probe, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))
}

// raw returns a session as the API server stores it.
func raw(t *testing.T, namespace, id string) map[string]any {
	t.Helper()
	return sessionKind.raw(t, namespace, id)
}

// raw returns an object as the API server stores it.
func (k kind) raw(t *testing.T, namespace, id string) map[string]any {
	t.Helper()
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(k.name))
	if err := env.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: v1alpha1.ObjectName(id)}, o); err != nil {
		t.Fatal(err)
	}
	return o.Object
}

func patchSession(t *testing.T, namespace, id, patch string) {
	t.Helper()
	o := &metav1.PartialObjectMetadata{} // the patch may make it undecodable
	o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.ResponseSessionKind))
	o.Namespace, o.Name = namespace, v1alpha1.ObjectName(id)
	if err := env.Client.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

// setFormat changes the format of the snapshot of a session or, if it has none, of its bodies.
func setFormat(t *testing.T, namespace, id string, format int) {
	t.Helper()
	spec := map[string]any{"format": format}
	if ref, found := raw(t, namespace, id)["spec"].(map[string]any)["snapshot"].(map[string]any); found {
		patchSession(t, namespace, id, `{"spec":{"snapshot":null}}`) // because a snapshot never changes
		ref["format"] = format
		spec = map[string]any{"snapshot": ref}
	}
	patch, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		t.Fatal(err)
	}
	patchSession(t, namespace, id, string(patch))
}

// TestOlderCRD: a turn with a field that the CRD lacks is rejected instead of being stored without the field.
func TestOlderCRD(t *testing.T) {
	s := open(t, kube.Options{})
	stored := testturn.Make("resp_1", "")
	save(t, s, stored)
	before := raw(t, s.Namespace(), "resp_1")["spec"]
	sessionKind.change(t, `[{"op":"remove","path":"`+schemas+`/spec/properties/completedAt"}]`, "completedAt", "2026-01-01T00:00:00Z", false)

	const text = "a sentence of the conversation"
	rejected := func(turn *store.Session, options store.SaveOptions) {
		t.Helper()
		turn.CompletedAt = time.Unix(1_700_000_000, 0)
		turn.Metadata = []byte(`{"text":"` + text + `"}`)
		err := s.Save(t.Context(), turn, options)
		if !errors.Is(err, store.ErrUnsupported) || store.IsRetryable(err) {
			t.Errorf("got %v, want ErrUnsupported", err)
		}
		for _, want := range []string{"the CRDs of the cluster are older", `unknown field "spec.completedAt"`} {
			if !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("got %v, want an error that contains %q", err, want)
			}
		}
		if strings.Contains(fmt.Sprint(err), text) {
			t.Errorf("the error quotes a body: %v", err)
		}
	}
	rejected(testturn.Make("resp_2", "resp_1"), store.SaveOptions{})
	if _, err := s.Get(t.Context(), "resp_2"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("got %v, want ErrNotFound", err)
	}
	rejected(largeTurn("resp_3", "resp_1"), store.SaveOptions{})
	if err := nothingStored(t, s.Namespace()); err != nil {
		t.Error(err)
	}
	rejected(testturn.Make("resp_1", ""), store.SaveOptions{Overwrite: true})
	if diff := cmp.Diff(before, raw(t, s.Namespace(), "resp_1")["spec"]); diff != "" {
		t.Errorf("the spec has changed (-want +got):\n%s", diff)
	}
	// Turns that do not need the field are stored, also in place of others.
	save(t, s, testturn.Make("resp_2", "resp_1"))
	stored.ConversationID = "conv_1"
	if err := s.Save(t.Context(), stored, store.SaveOptions{Overwrite: true}); err != nil {
		t.Error(err)
	}
}

// TestOlderConversationCRD: a conversation with a field that the CRD lacks is rejected instead of being stored without the field.
func TestOlderConversationCRD(t *testing.T) {
	c := openConversations(t)
	c.mustCreate(t, active("conv_1"))
	conversationKind.change(t, `[{"op":"remove","path":"`+schemas+`/spec/properties/systemPrompt"}]`, "systemPrompt", "x", false)
	const text = "a sentence of the conversation"
	prompted := active("conv_2")
	prompted.SystemPrompt = text
	_, createErr := c.create(t.Context(), prompted)
	_, updateErr := c.update(t.Context(), "conv_1", driver.ConversationUpdate{
		ConversationPatch: driver.ConversationPatch{SystemPrompt: new(text), Title: new("a title")},
	})
	for call, err := range map[string]error{"create": createErr, "update": updateErr} {
		if !errors.Is(err, store.ErrUnsupported) || store.IsRetryable(err) || !strings.Contains(fmt.Sprint(err), "the CRDs of the cluster are older") {
			t.Errorf("%s: got %v, want ErrUnsupported", call, err)
		}
		if strings.Contains(fmt.Sprint(err), text) {
			t.Errorf("%s: the error quotes a prompt: %v", call, err)
		}
	}
	if _, err := c.get(t.Context(), "conv_2"); !errors.Is(err, store.ErrConversationNotFound) {
		t.Errorf("got %v, want ErrConversationNotFound", err)
	}
	c.want(t, active("conv_1"))
	titled := active("conv_1")
	titled.Title = "a title"
	if _, err := c.update(t.Context(), "conv_1", driver.ConversationUpdate{ConversationPatch: driver.ConversationPatch{Title: &titled.Title}}); err != nil {
		t.Error(err)
	}
	c.want(t, titled)
}

// TestNewerConversationCRD: fields that only a newer version defines are preserved by writes of the library and the operator.
func TestNewerConversationCRD(t *testing.T) {
	s := open(t, kube.Options{})
	conversationKind.change(t, `[`+laterFields+`]`, "later", map[string]any{"a": int64(1)}, true)
	conversations := s.Conversations()
	if _, err := conversations.Create(t.Context(), &store.Conversation{ConversationID: "conv_1", Title: "first"}); err != nil {
		t.Fatal(err)
	}
	o := &v1alpha1.Conversation{}
	o.Namespace, o.Name = s.Namespace(), v1alpha1.ObjectName("conv_1")
	if err := env.Client.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"later":{"a":1}}}`))); err != nil {
		t.Fatal(err)
	}
	later := client.RawPatch(types.MergePatchType, []byte(`{"status":{"later":"x"}}`))
	if err := env.Client.Status().Patch(t.Context(), o, later, client.FieldOwner("newer")); err != nil {
		t.Fatal(err)
	}
	if _, err := conversations.Append(t.Context(), "conv_1", testturn.Make("resp_1", ""), store.AppendOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := conversations.HideItem(t.Context(), "conv_1", "resp_1", 0); err != nil {
		t.Fatal(err)
	}
	if _, err := conversations.Archive(t.Context(), "conv_1"); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, func(ctx context.Context) error {
		if err := env.Client.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		if o.Status.Turns != 1 || o.Status.ObservedGeneration != o.Generation {
			return fmt.Errorf("the status is %+v at generation %d", o.Status, o.Generation)
		}
		return nil
	})
	now := conversationKind.raw(t, s.Namespace(), "conv_1")
	if diff := cmp.Diff(map[string]any{"a": int64(1)}, now["spec"].(map[string]any)["later"]); diff != "" {
		t.Errorf("spec.later (-want +got):\n%s", diff)
	}
	if got := now["status"].(map[string]any)["later"]; got != "x" {
		t.Errorf("status.later is %v, want x", got)
	}
}

// laterFields adds fields to a CRD that only a newer version defines, and newerFields also formats.
const (
	laterFields = `
  {"op":"add","path":"` + schemas + `/spec/properties/later","value":{"type":"object","x-kubernetes-preserve-unknown-fields":true}},
  {"op":"add","path":"` + schemas + `/status/properties/later","value":{"type":"string"}}`
	newerFields = `[` + laterFields + `,
  {"op":"replace","path":"` + schemas + `/spec/properties/format/maximum","value":3},
  {"op":"replace","path":"` + schemas + `/spec/properties/snapshot/properties/format/maximum","value":2}]`
)

// TestNewerCRD: fields that only a newer version defines are preserved by writes of the library and the operator.
func TestNewerCRD(t *testing.T) {
	s := open(t, kube.Options{})
	sessionKind.change(t, newerFields, "later", map[string]any{"a": int64(1)}, true)
	turn := testturn.Make("resp_1", "")
	turn.Request = []byte(`{"input":"one","old":{"kept":false}}`)
	turn.Metadata = []byte(`{"old":1}`)
	save(t, s, turn)
	testsession.WaitForReason(t, env.Client, s.Namespace(), "resp_1", v1alpha1.ReasonResolved)
	patchSession(t, s.Namespace(), "resp_1", `{"spec":{"later":{"a":1}}}`)
	o := &v1alpha1.ResponseSession{}
	o.Namespace, o.Name = s.Namespace(), v1alpha1.ObjectName("resp_1")
	later := client.RawPatch(types.MergePatchType, []byte(`{"status":{"later":"x"}}`))
	if err := env.Client.Status().Patch(t.Context(), o, later, client.FieldOwner("newer")); err != nil {
		t.Fatal(err)
	}

	turn.Request, turn.Metadata = []byte(`{"future":{"field":[1]},"input":"two"}`), nil
	turn.Response, turn.Status, turn.ConversationID, turn.Version = nil, "failed", "conv_1", ""
	if err := s.Save(t.Context(), turn, store.SaveOptions{Overwrite: true}); err != nil {
		t.Fatal(err)
	}
	testsession.WaitForReason(t, env.Client, s.Namespace(), "resp_1", v1alpha1.ReasonTurnNotCompleted)
	if got, err := s.Get(t.Context(), "resp_1"); err != nil || !cmp.Equal(turn, got, sameSession) {
		t.Errorf("got %+v and error %v, want %+v", got, err, turn)
	}
	now := raw(t, s.Namespace(), "resp_1")
	if diff := cmp.Diff(map[string]any{"a": int64(1)}, now["spec"].(map[string]any)["later"]); diff != "" {
		t.Errorf("spec.later (-want +got):\n%s", diff)
	}
	if got := now["status"].(map[string]any)["later"]; got != "x" {
		t.Errorf("status.later is %v, want x", got)
	}

	// A child that was saved before its parent gets its ownerReference from the operator.
	save(t, s, testturn.Make("resp_3", "resp_2"))
	patchSession(t, s.Namespace(), "resp_3", `{"spec":{"later":{"b":2}}}`)
	save(t, s, testturn.Make("resp_2", ""))
	testutil.Eventually(t, func(context.Context) error {
		if owners := object(t, s.Namespace(), "resp_3").OwnerReferences; len(owners) != 1 {
			return fmt.Errorf("got the owners %v, want one", owners)
		}
		return nil
	})
	if diff := cmp.Diff(map[string]any{"b": int64(2)}, raw(t, s.Namespace(), "resp_3")["spec"].(map[string]any)["later"]); diff != "" {
		t.Errorf("spec.later (-want +got):\n%s", diff)
	}
}

// TestNewerFormat: turns in a format of a newer version are unreadable until that version runs, and are not replaced.
func TestNewerFormat(t *testing.T) {
	s := open(t, kube.Options{})
	sessionKind.change(t, newerFields, "later", map[string]any{}, true)
	for name, tc := range map[string]struct {
		turn        *store.Session
		newer, back int
		want        string
	}{
		"bodies":   {testturn.Make("bodies", ""), 3, 2, "its bodies are in format 3"},
		"snapshot": {largeTurn("snapshot", ""), 2, 1, "its snapshot is in format 2"},
	} {
		t.Run(name, func(t *testing.T) {
			id, child := tc.turn.ResponseID, tc.turn.ResponseID+"_child"
			save(t, s, tc.turn)
			save(t, s, testturn.Make(child, id))
			testsession.WaitForReason(t, env.Client, s.Namespace(), child, v1alpha1.ReasonResolved)
			setFormat(t, s.Namespace(), id, tc.newer)
			session := testsession.WaitForReason(t, env.Client, s.Namespace(), id, v1alpha1.ReasonSnapshotUnreadable)
			if message := session.Status.Conditions[0].Message; !strings.Contains(message, tc.want) || !strings.Contains(message, "upgrade the operator") {
				t.Errorf("got the message %q, want the format and what to upgrade", message)
			}
			testsession.WaitForReason(t, env.Client, s.Namespace(), child, v1alpha1.ReasonSnapshotUnreadable)

			stored := raw(t, s.Namespace(), id)["spec"]
			overwritten := *tc.turn
			overwritten.Version, overwritten.Status = "", "failed"
			_, getErr := s.Get(t.Context(), id)
			saveErr := s.Save(t.Context(), &overwritten, store.SaveOptions{Overwrite: true})
			for call, err := range map[string]error{"get": getErr, "save": saveErr} {
				if !errors.Is(err, store.ErrUnreadable) || store.IsRetryable(err) || !strings.Contains(fmt.Sprint(err), tc.want) || !strings.Contains(fmt.Sprint(err), "upgrade this program") {
					t.Errorf("%s: got %v, want an error that requires a newer program", call, err)
				}
			}
			if _, err := s.Resolve(t.Context(), child, store.ResolveOptions{}); !errors.Is(err, store.ErrUnreadable) {
				t.Errorf("resolve: got %v, want ErrUnreadable", err)
			}
			if diff := cmp.Diff(stored, raw(t, s.Namespace(), id)["spec"]); diff != "" {
				t.Errorf("the spec has changed (-want +got):\n%s", diff)
			}

			setFormat(t, s.Namespace(), id, tc.back) // has the same effect as an upgrade of the operator
			testsession.WaitForReason(t, env.Client, s.Namespace(), id, v1alpha1.ReasonResolved)
			testsession.WaitForReason(t, env.Client, s.Namespace(), child, v1alpha1.ReasonResolved)
			if history, err := s.Resolve(t.Context(), child, store.ResolveOptions{}); err != nil || len(history.Turns) != 2 {
				t.Errorf("resolve: got %v", err)
			}
			if err := s.Delete(t.Context(), id, store.DeleteOptions{Cascade: true}); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestStoredObjects: objects stored by earlier builds remain readable. testdata has a file for each format of bodies: in the first, a
// turn stored in the object and one in a chunk, and in the second, a turn that is packed. They are never written again: add others
// for a new format.
func TestStoredObjects(t *testing.T) {
	s := open(t, kube.Options{})
	for _, file := range []string{"testdata/stored-1.json", "testdata/stored-2.json"} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var objects []map[string]any
		if err := json.Unmarshal(data, &objects); err != nil {
			t.Fatal(err)
		}
		for _, object := range objects {
			o := &unstructured.Unstructured{Object: object}
			o.SetNamespace(s.Namespace())
			if err := env.Client.Create(t.Context(), o, client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := map[string]*store.Session{
		"resp_1": {
			ResponseID: "resp_1", ConversationID: "conv_1", Status: "completed", Immutable: true,
			CreatedAt: time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC), CompletedAt: time.Date(2026, 11, 20, 10, 0, 9, 0, time.UTC),
			Request:  []byte(`{"input":"one","instructions":"be brief"}`),
			Response: []byte(`{"output":[{"role":"assistant","type":"message"}]}`),
			Metadata: []byte(`{"k":"ü"}`),
		},
		"resp_2": {
			ResponseID: "resp_2", PreviousResponseID: "resp_1", Status: "completed",
			Request:  []byte(`{ "input":"grüße \u0001", "n":12345678901234567890 }`),
			Response: []byte(`{"output":[{"type":"message","role":"assistant","content":"one"}],"f":1.0}`),
			Metadata: []byte(`{"a":1,"a":2}`),
		},
	}
	packed := *want["resp_2"]
	packed.ResponseID, packed.PreviousResponseID = "resp_3", "resp_2"
	want["resp_3"] = &packed
	for id, turn := range want {
		got, err := s.Get(t.Context(), id)
		if err != nil {
			t.Errorf("%s: %v", id, err)
			continue
		}
		got.CreatedAt, got.CompletedAt = got.CreatedAt.UTC(), got.CompletedAt.UTC()
		if diff := cmp.Diff(turn, got, sameSession); diff != "" {
			t.Errorf("%s (-want +got):\n%s", id, diff)
		}
	}
	testsession.WaitForReason(t, env.Client, s.Namespace(), "resp_3", v1alpha1.ReasonResolved)
	history, err := s.Resolve(t.Context(), "resp_3", store.ResolveOptions{})
	if err != nil || len(history.Turns) != 3 || len(history.Items) != 7 {
		t.Errorf("got %+v and error %v, want 3 turns with 7 items", history, err)
	}
}

// TestOlderOperator: an operator that does not know newer parameters refuses only conversations that were cut off, and returns neither origins nor
// digests.
func TestOlderOperator(t *testing.T) {
	s := openThrough(t, env.NewNamespace(t), withoutParameters("continueIncomplete", "digests", "origins")) //nolint:bodyclose // the client closes it
	save(t, s, testturn.Make("resp_1", ""))
	cutOff := testturn.Make("resp_2", "resp_1")
	cutOff.Status = store.StatusIncomplete
	save(t, s, cutOff)
	options := store.ResolveOptions{ContinueIncomplete: true, Origins: true, Digests: true}
	if history, err := s.Resolve(t.Context(), "resp_1", options); err != nil || len(history.Turns) != 1 {
		t.Errorf("got %v, %v, want one turn", history, err)
	}
	if _, err := s.Resolve(t.Context(), "resp_2", options); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("got %v, want that the turn is incomplete", err)
	}
	if _, err := s.FindItem(t.Context(), "resp_1", "item", store.ResolveOptions{}); !errors.Is(err, store.ErrUnsupported) || !strings.Contains(err.Error(), "upgrade the operator") {
		t.Errorf("got %v, want an error that requires a newer operator", err)
	}
	options.Bodies = true // the origins are then those of the library
	if history, err := s.Resolve(t.Context(), "resp_1", options); err != nil || len(history.Sessions) != 1 || len(history.Origins) != 1 {
		t.Errorf("got %v, %v, want one turn with its body and origin", history, err)
	}
}

// withoutParameters answers requests as an operator that does not know some parameters, which are in alphabetical order.
func withoutParameters(names ...string) func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	return func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		i := slices.IndexFunc(names, r.URL.Query().Has)
		if i < 0 {
			return next.RoundTrip(r)
		}
		body := `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","reason":"BadRequest","code":400,` +
			`"message":"query parameter \"` + names[i] + `\" is unknown: must be one of maxDepth, includeIncomplete, instructions, limit, after, order, resourceVersion"}`
		return &http.Response{
			StatusCode: http.StatusBadRequest, Header: http.Header{"Content-Type": {"application/json"}},
			Body: io.NopCloser(strings.NewReader(body)), Request: r,
		}, nil
	}
}
