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

package controllers_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/kubeclient"
)

// unstructuredOf returns an object whose spec has a part, in JSON, merged into it. A field that is null is removed.
func unstructuredOf(t *testing.T, kind, namespace, name string, spec map[string]any, part string) *unstructured.Unstructured {
	t.Helper()
	mustUnmarshal(t, part, &spec)
	for field, value := range spec {
		if value == nil {
			delete(spec, field)
		}
	}
	object := unstructuredTurn(namespace, name, spec)
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	return object
}

func unstructuredConversation(t *testing.T, namespace, id, part string) *unstructured.Unstructured {
	t.Helper()
	return unstructuredOf(t, v1alpha1.ConversationKind, namespace, v1alpha1.ObjectName(id), map[string]any{"conversationID": id}, part)
}

func unstructuredSummary(t *testing.T, namespace, id, part string) *unstructured.Unstructured {
	t.Helper()
	spec := map[string]any{"conversationID": id, "startTurn": 0, "endTurn": 2, "content": "They talked."}
	return unstructuredOf(t, v1alpha1.ConversationSummaryKind, namespace, v1alpha1.SummaryName(id, v1alpha1.SummaryTurns(0, 2)), spec, part)
}

func newConversation(namespace, id string) *v1alpha1.Conversation {
	return &v1alpha1.Conversation{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.ObjectName(id)}, Spec: v1alpha1.ConversationSpec{ConversationID: id},
	}
}

func newSummary(namespace, id string) *v1alpha1.ConversationSummary {
	return &v1alpha1.ConversationSummary{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.SummaryName(id, v1alpha1.SummaryTurns(0, 2))},
		Spec:       v1alpha1.ConversationSummarySpec{ConversationID: id, EndTurn: 2, Content: "They talked."},
	}
}

// repeated returns n JSON values, separated by commas.
func repeated(n int, value string) string {
	return strings.Join(slices.Repeat([]string{value}, n), ",")
}

func TestConversationCreate(t *testing.T) {
	a := func(n int) string { return strings.Repeat("a", n) }
	const (
		needsHead        = "`headResponseID` must be set if `reservation` is"
		needsReservation = "`baseResponseID` must be absent without a `reservation`"
	)
	tests := map[string]struct {
		spec    string // JSON, merged into a valid spec; null removes a field
		wantErr string // part of the message; empty if the spec is accepted
	}{
		"minimal": {`{}`, ""},
		"all fields": {`{"userID":"ada","title":"Lisbon","systemPrompt":"Be brief.","metadata":{"a":{"b":null}},"state":"Archived",
			"headResponseID":"resp_2","baseResponseID":"resp_1","reservation":{"durationSeconds":600,"renewals":7},
			"forkedFrom":{"conversationID":"conv_0","responseID":"resp_1"},"parentConversationID":"conv_9",
			"hiddenItems":[{"responseID":"resp_1","number":0}],"summaries":["0-1","0-2147483647"]}`, ""},

		"conversationID is missing":     {`{"conversationID":null}`, "spec.conversationID: Required value"},
		"conversationID is empty":       {`{"conversationID":""}`, "spec.conversationID in body should be at least 1 chars long"},
		"userID of 512":                 {`{"userID":"` + strings.Repeat("é", 512) + `"}`, ""},
		"userID of 513":                 {`{"userID":"` + a(513) + `"}`, "spec.userID: Too long: may not be more than 512"},
		"userID is empty":               {`{"userID":""}`, "spec.userID in body should be at least 1 chars long"},
		"title of 1,024":                {`{"title":"` + strings.Repeat("é", 1024) + `"}`, ""},
		"title of 1,025":                {`{"title":"` + a(1025) + `"}`, "spec.title: Too long: may not be more than 1024"},
		"systemPrompt of 65,536":        {`{"systemPrompt":"` + strings.Repeat("é", 65536) + `"}`, ""},
		"systemPrompt of 65,537":        {`{"systemPrompt":"` + a(65537) + `"}`, "spec.systemPrompt: Too long: may not be more than 65536"},
		"parentConversationID of 513":   {`{"parentConversationID":"` + a(513) + `"}`, "spec.parentConversationID: Too long: may not be more than 512"},
		"state is unknown":              {`{"state":"Paused"}`, `spec.state: Unsupported value: "Paused"`},
		"metadata is a string":          {`{"metadata":"a"}`, `spec.metadata in body must be of type object: "string"`},
		"metadata is a list":            {`{"metadata":[]}`, `spec.metadata in body must be of type object: "array"`},
		"forkedFrom nothing":            {`{"forkedFrom":{"responseID":"resp_1"}}`, "spec.forkedFrom.conversationID: Required value"},
		"forkedFrom an empty one":       {`{"forkedFrom":{"conversationID":"conv_0"}}`, ""},
		"head":                          {`{"headResponseID":"resp_1"}`, ""},
		"head of 513":                   {`{"headResponseID":"` + a(513) + `"}`, "spec.headResponseID: Too long: may not be more than 512"},
		"reservation of the first turn": {`{"headResponseID":"resp_1","reservation":{"durationSeconds":1}}`, ""},
		"reservation without a head":    {`{"reservation":{"durationSeconds":30}}`, needsHead},
		"reservation of a second turn":  {`{"headResponseID":"resp_2","baseResponseID":"resp_1","reservation":{"durationSeconds":30,"renewals":0}}`, ""},
		"base without a reservation":    {`{"headResponseID":"resp_2","baseResponseID":"resp_1"}`, needsReservation},
		"base without a head":           {`{"baseResponseID":"resp_1"}`, needsReservation},
		"reservation without a time":    {`{"headResponseID":"resp_1","reservation":{"renewals":1}}`, "spec.reservation.durationSeconds: Required value"},
		"reservation of no time":        {`{"headResponseID":"resp_1","reservation":{"durationSeconds":0}}`, "should be greater than or equal to 1"},
		"reservation of 601 seconds":    {`{"headResponseID":"resp_1","reservation":{"durationSeconds":601}}`, "should be less than or equal to 600"},
		"no hidden items, no summaries": {`{"hiddenItems":[],"summaries":[]}`, ""},
		"1,001 hidden items":            {`{"hiddenItems":[` + repeated(1001, `{"responseID":"a","number":0}`) + `]}`, "spec.hiddenItems: Too many: 1001: must have at most 1000 items"},
		"257 summaries":                 {`{"summaries":[` + repeated(257, `"0-1"`) + `]}`, "spec.summaries: Too many: 257: must have at most 256 items"},
		"summary of an object":          {`{"summaries":[{"startTurn":0}]}`, "spec.summaries[0] in body must be of type string"},
		"summary of a negative turn":    {`{"summaries":["-1-1"]}`, "spec.summaries[0] in body should match"},
		"summary of turn 01":            {`{"summaries":["01-2"]}`, "spec.summaries[0] in body should match"},
		"summary that ends at turn 0":   {`{"summaries":["0-0"]}`, "spec.summaries[0] in body should match"},
		"summary of two lines":          {`{"summaries":["0-1\n"]}`, "spec.summaries[0] in body should match"},
		"negative renewals":             {`{"headResponseID":"resp_1","reservation":{"durationSeconds":30,"renewals":-1}}`, "should be greater than or equal to 0"},
	}
	ns := env.NewNamespace(t)
	i := 0
	for name, tc := range tests {
		i++
		id := fmt.Sprintf("conv_create%d", i)
		t.Run(name, func(t *testing.T) {
			wantResult(t, env.Client.Create(t.Context(), unstructuredConversation(t, ns, id, tc.spec)), tc.wantErr)
		})
	}
}

// TestConversationDefaults: a conversation is active unless it says otherwise, and its metadata is kept as equal JSON.
func TestConversationDefaults(t *testing.T) {
	ns := env.NewNamespace(t)
	want := v1alpha1.ConversationSpec{ConversationID: "conv_1", Metadata: &runtime.RawExtension{Raw: []byte(`{"a":null,"b":[{"c":1.5,"d":{}}]}`)}}
	object := &v1alpha1.Conversation{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "conv.1"}, Spec: want}
	createAll(t, object)
	want.State = v1alpha1.ConversationStateActive
	stored := &v1alpha1.Conversation{}
	if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(object), stored); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, stored.Spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
}

func TestConversationUpdate(t *testing.T) {
	const (
		identity = "`conversationID` must not change: create another conversation"
		fork     = "`forkedFrom` must not change: it is fixed when the conversation is created"
		parent   = "`parentConversationID` must not change: it is fixed when the conversation is created"
		reserved = `{"headResponseID":"resp_2","baseResponseID":"resp_1","reservation":{"durationSeconds":30}}`
		forked   = `{"forkedFrom":{"conversationID":"a","responseID":"r"}}`
		awaited  = `{"state":"Deleting","headResponseID":"resp_1","reservation":{"durationSeconds":600}}` // the operator waits for the turn
	)
	tests := map[string]struct{ before, after, wantErr string }{
		"descriptions change":        {`{"title":"a","metadata":{"a":1}}`, `{"title":null,"userID":"ada","systemPrompt":"b","metadata":{"a":null,"b":2}}`, ""},
		"state changes":              {`{}`, `{"state":"Deleting"}`, ""},
		"deletion goes on":           {awaited, `{"state":"Deleting","title":"a"}`, ""},
		"deletion is undone":         {awaited, `{"state":"Active"}`, "`state` must remain Deleting"},
		"deletion has no state":      {awaited, `{"state":null}`, "`state` must remain Deleting"},
		"head is reserved":           {`{"headResponseID":"resp_1"}`, reserved, ""},
		"head is rolled back":        {reserved, `{"headResponseID":"resp_0","baseResponseID":null,"reservation":null}`, ""},
		"history is cleared":         {reserved, `{"headResponseID":null,"baseResponseID":null,"reservation":null}`, ""},
		"reservation is gone":        {reserved, `{"reservation":null}`, "`baseResponseID` must be absent without a `reservation`"},
		"only the head is gone":      {reserved, `{"headResponseID":null}`, "`headResponseID` must be set if `reservation` is"},
		"only the head changes":      {reserved, `{"headResponseID":"resp_1"}`, "`headResponseID` must not change while the `reservation` stays"},
		"only the reservation stays": {reserved, `{"headResponseID":"resp_1","baseResponseID":null}`, "`headResponseID` must not change while the `reservation` stays"},
		"another base":               {reserved, `{"headResponseID":"resp_1","baseResponseID":"resp_0"}`, "`headResponseID` must not change while the `reservation` stays"},
		"only the first head":        {`{"headResponseID":"resp_1","reservation":{"durationSeconds":30}}`, `{"headResponseID":"resp_0"}`, "`headResponseID` must not change while the `reservation` stays"},
		"next place":                 {reserved, `{"headResponseID":"resp_3","baseResponseID":"resp_2"}`, ""},
		"next place, the second": {
			`{"headResponseID":"resp_1","reservation":{"durationSeconds":30}}`, `{"headResponseID":"resp_2","baseResponseID":"resp_1"}`, "",
		},
		"place is taken over":    {reserved, `{"headResponseID":"resp_3","reservation":{"renewals":7}}`, ""},
		"reservation is renewed": {reserved, `{"reservation":{"renewals":7}}`, ""},

		"conversationID changes":          {`{}`, `{"conversationID":"conv_other"}`, identity},
		"forkedFrom is set":               {`{}`, forked, fork},
		"forkedFrom is removed":           {forked, `{"forkedFrom":null}`, fork},
		"forkedFrom another conversation": {forked, `{"forkedFrom":{"conversationID":"b"}}`, fork},
		"forkedFrom another turn":         {forked, `{"forkedFrom":{"responseID":"s"}}`, fork},
		"forkedFrom no turn":              {forked, `{"forkedFrom":{"responseID":null}}`, fork},
		"forkedFrom a turn after all":     {`{"forkedFrom":{"conversationID":"a"}}`, forked, fork},
		"forkedFrom is unchanged":         {forked, forked, ""},
		"parent changes":                  {`{"parentConversationID":"a"}`, `{"parentConversationID":"b"}`, parent},
		"parent is set":                   {`{}`, `{"parentConversationID":"b"}`, parent},
		"parent is removed":               {`{"parentConversationID":"a"}`, `{"parentConversationID":null}`, parent},
		"parent is unchanged":             {`{"parentConversationID":"a"}`, `{"parentConversationID":"a"}`, ""},
	}
	ns := env.NewNamespace(t)
	i := 0
	for name, tc := range tests {
		i++
		id := fmt.Sprintf("conv_update%d", i)
		t.Run(name, func(t *testing.T) {
			object := unstructuredConversation(t, ns, id, tc.before)
			if err := env.Client.Create(t.Context(), object); err != nil {
				t.Fatal(err)
			}
			patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":`+tc.after+`}`))
			wantResult(t, env.Client.Patch(t.Context(), object, patch), tc.wantErr)
		})
	}
}

func TestConversationSummaryCreate(t *testing.T) {
	tests := map[string]struct{ spec, wantErr string }{
		"minimal":                   {`{}`, ""},
		"all fields":                {`{"tokenCount":3,"createdAt":"2026-11-20T10:00:00Z"}`, ""},
		"conversationID is missing": {`{"conversationID":null}`, "spec.conversationID: Required value"},
		"startTurn is missing":      {`{"startTurn":null}`, "spec.startTurn: Required value"},
		"startTurn is negative":     {`{"startTurn":-1}`, "should be greater than or equal to 0"},
		"endTurn is missing":        {`{"endTurn":null}`, "spec.endTurn: Required value"},
		"no turns":                  {`{"startTurn":2}`, "`endTurn` must be greater than `startTurn`"},
		"turns in reverse":          {`{"startTurn":3}`, "`endTurn` must be greater than `startTurn`"},
		"content is missing":        {`{"content":null}`, "spec.content: Required value"},
		"content is empty":          {`{"content":""}`, "spec.content in body should be at least 1 chars long"},
		"content of 65,536":         {`{"content":"` + strings.Repeat("é", 65536) + `"}`, ""},
		"content of 65,537":         {`{"content":"` + strings.Repeat("a", 65537) + `"}`, "spec.content: Too long: may not be more than 65536"},
		"tokenCount is negative":    {`{"tokenCount":-1}`, "should be greater than or equal to 0"},
		"createdAt in lower case":   {`{"createdAt":"2026-11-20t10:00:00z"}`, "spec.createdAt in body should match"},
	}
	ns := env.NewNamespace(t)
	i := 0
	for name, tc := range tests {
		i++
		id := fmt.Sprintf("conv_%d", i)
		t.Run(name, func(t *testing.T) {
			wantResult(t, env.Client.Create(t.Context(), unstructuredSummary(t, ns, id, tc.spec)), tc.wantErr)
		})
	}
}

func TestConversationSummaryUpdate(t *testing.T) {
	const full = `{"tokenCount":3,"createdAt":"2026-11-20T10:00:00Z"}`
	tests := map[string]struct {
		before, after string
		allowed       bool
	}{
		"content":               {before: full, after: `{"content":"They argued."}`},
		"turns":                 {before: full, after: `{"endTurn":3}`},
		"tokenCount":            {before: full, after: `{"tokenCount":4}`},
		"tokenCount is added":   {before: `{}`, after: `{"tokenCount":4}`},
		"tokenCount is removed": {before: full, after: `{"tokenCount":null}`},
		"createdAt":             {before: full, after: `{"createdAt":"2026-11-20T10:00:01Z"}`},
		"createdAt is added":    {before: `{}`, after: `{"createdAt":"2026-11-20T10:00:00Z"}`},
		"createdAt is removed":  {before: full, after: `{"createdAt":null}`},
		"nothing":               {before: full, after: full, allowed: true},
	}
	ns := env.NewNamespace(t)
	i := 0
	for name, tc := range tests {
		i++
		id := fmt.Sprintf("conv_%d", i)
		t.Run(name, func(t *testing.T) {
			object := unstructuredSummary(t, ns, id, tc.before)
			if err := env.Client.Create(t.Context(), object); err != nil {
				t.Fatal(err)
			}
			wantErr := "a summary must not change"
			if tc.allowed {
				wantErr = ""
			}
			patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}},"spec":`+tc.after+`}`))
			wantResult(t, env.Client.Patch(t.Context(), object, patch), wantErr)
		})
	}
}

// TestConversationNames: the CRDs accept the names that ObjectName and SummaryName return, and no others that they can distinguish.
func TestConversationNames(t *testing.T) {
	ns := env.NewNamespace(t)
	ids := rapid.OneOf(
		rapid.StringMatching(`conv_[0-9a-f]{2,48}`),
		rapid.StringMatching(`[a-z]{1,3}(-[0-9]{1,2}){0,3}`),
		rapid.StringOfN(rapid.RuneFrom([]rune("ab09-_.A")), 1, 8, -1),
		rapid.StringMatching(`(sha256)[_.]?[a-z2-7]{0,3}`),
		rapid.StringMatching(`[a-z]{228}[-a-z_]{0,5}[a-z]`),
		rapid.StringMatching(`[a-z]{250}[-a-z_]{0,5}[a-z]`),
		rapid.StringN(1, 20, -1).Filter(utf8.ValidString),
	)
	check := func(rt *rapid.T, object *unstructured.Unstructured, name string, want bool) {
		object.SetName(name)
		err := env.Client.Create(t.Context(), object, client.DryRunAll)
		if err != nil && !apierrors.IsInvalid(err) || (err == nil) != want {
			rt.Errorf("create %s of %v as %q: %v, want it accepted: %t", object.GetKind(), object.Object["spec"], name, err, want)
		}
	}
	// other returns the other form of a name: CEL can distinguish it from the right one, but not one hash from another.
	other := func(id, name string) string {
		if strings.HasPrefix(name, "sha256.") {
			return strings.Trim(strings.ToLower(strings.ReplaceAll(id, "_", ".")), ".-") + "x"
		}
		return "sha256." + strings.Repeat("a", 52)
	}
	rapid.Check(t, func(rt *rapid.T) {
		id := ids.Draw(rt, "id")
		name := v1alpha1.ObjectName(id)
		conversation := unstructuredConversation(t, ns, id, `{}`)
		check(rt, conversation, name, true)
		check(rt, conversation, other(id, name), false)

		start := rapid.Int32Range(0, 2_147_483_646).Draw(rt, "start")
		end := rapid.Int32Range(start+1, 2_147_483_647).Draw(rt, "end")
		name = v1alpha1.SummaryName(id, v1alpha1.SummaryTurns(start, end))
		summary := unstructuredSummary(t, ns, id, fmt.Sprintf(`{"startTurn":%d,"endTurn":%d}`, start, end))
		check(rt, summary, name, true)
		check(rt, summary, other(id, name)+fmt.Sprintf("-%d-%d", start, end), false)
		check(rt, summary, name+"1", false)
		check(rt, summary, strings.TrimSuffix(name, fmt.Sprintf("-%d-%d", start, end))+fmt.Sprintf("-0%d-%d", start, end), false)
	})
}

func TestConversationFieldSelectors(t *testing.T) {
	ns := env.NewNamespace(t)
	for id, spec := range map[string]string{
		"a": `{"userID":"ada","headResponseID":"resp_1"}`,
		"b": `{"userID":"ada","state":"Archived","parentConversationID":"a"}`,
		"c": `{"userID":"bob","headResponseID":"resp_1"}`,
	} {
		createAll(t, unstructuredConversation(t, ns, id, spec))
	}
	createAll(t, unstructuredSummary(t, ns, "a", `{}`), unstructuredSummary(t, ns, "b", `{}`))
	tests := map[string]struct {
		selector client.MatchingFields
		want     []string
	}{
		"spec.conversationID":       {client.MatchingFields{"spec.conversationID": "b"}, []string{"b"}},
		"spec.userID":               {client.MatchingFields{"spec.userID": "ada"}, []string{"a", "b"}},
		"spec.state":                {client.MatchingFields{"spec.state": "Active"}, []string{"a", "c"}},
		"spec.parentConversationID": {client.MatchingFields{"spec.parentConversationID": "a"}, []string{"b"}},
		"spec.headResponseID":       {client.MatchingFields{"spec.headResponseID": "resp_1"}, []string{"a", "c"}},
		"two fields":                {client.MatchingFields{"spec.userID": "ada", "spec.state": "Archived"}, []string{"b"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			list := &v1alpha1.ConversationList{}
			if err := env.Client.List(t.Context(), list, client.InNamespace(ns), tc.selector); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, conversation := range list.Items {
				got = append(got, conversation.Spec.ConversationID)
			}
			slices.Sort(got)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("conversations (-want +got):\n%s", diff)
			}
		})
	}
	summaries := &v1alpha1.ConversationSummaryList{}
	err := env.Client.List(t.Context(), summaries, client.InNamespace(ns), client.MatchingFields{"spec.conversationID": "b"})
	if err != nil || len(summaries.Items) != 1 || summaries.Items[0].Name != "b-0-2" {
		t.Errorf("got the summaries %+v and error %v", summaries.Items, err)
	}
}

func TestConversationDiscovery(t *testing.T) {
	resources, err := discovery.NewDiscoveryClientForConfigOrDie(env.Config).ServerResourcesForGroupVersion(v1alpha1.GroupVersion.String())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, resource := range resources.APIResources {
		got[resource.Name] = append(append([]string{resource.Kind}, resource.ShortNames...), resource.Categories...)
	}
	for resource, want := range map[string][]string{
		kubeclient.Conversations: {v1alpha1.ConversationKind, "conv", "catena"},
		kubeclient.Summaries:     {v1alpha1.ConversationSummaryKind, "convsum", "catena"},
	} {
		if diff := cmp.Diff(want, got[resource]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", resource, diff)
		}
	}
}

// TestConversationTables pins the columns of `kubectl get`, and the columns of priority 1, which `-o wide` adds.
func TestConversationTables(t *testing.T) {
	ns := env.NewNamespace(t)
	conversation := unstructuredConversation(t, ns, "conv_1", `{"userID":"ada","title":"Lisbon","headResponseID":"resp_1","forkedFrom":{"conversationID":"conv_0"}}`)
	createAll(t, conversation, unstructuredSummary(t, ns, "conv_1", `{"tokenCount":3}`))
	create(t, turn(ns, "resp_0"), turn(ns, "resp_1", "resp_0"))
	wantHistories(t, ns, map[string]history{"conv_1": historyOf(2)})
	c, err := kubeclient.New(env.Config)
	if err != nil {
		t.Fatal(err)
	}
	for resource, want := range map[string]struct {
		columns []string
		row     []any // without the age
	}{
		kubeclient.Conversations: {
			[]string{"Name", "User", "State", "Turns", "Head", "Verdict", "Title", "Age", "Parent", "Forked-From"},
			[]any{"conv.1", "ada", "Active", 2.0, "resp_1", "Resolved", "Lisbon", "age", nil, "conv_0"},
		},
		kubeclient.Summaries: {
			[]string{"Name", "Conversation", "Start", "End", "Tokens", "Age"},
			[]any{"conv.1-0-2", "conv_1", 0.0, 2.0, 3.0, "age"},
		},
	} {
		data, err := c.Get().Namespace(ns).Resource(resource).SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(t.Context()).Raw()
		if err != nil {
			t.Fatal(err)
		}
		table := &metav1.Table{}
		mustUnmarshal(t, string(data), table)
		var columns []string
		for i, column := range table.ColumnDefinitions {
			columns = append(columns, column.Name)
			if column.Name == "Age" && table.Rows[0].Cells[i] != "" {
				table.Rows[0].Cells[i] = "age"
			}
		}
		if diff := cmp.Diff(want.columns, columns); diff != "" {
			t.Errorf("%s: columns (-want +got):\n%s", resource, diff)
		}
		if diff := cmp.Diff(want.row, table.Rows[0].Cells); diff != "" {
			t.Errorf("%s: row (-want +got):\n%s", resource, diff)
		}
	}
}
