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

package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/testenv"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/golden"
	"github.com/catena-dev/catena/internal/testutil/testsession"
)

// kubectl runs kubectl as the administrator and returns its output.
func kubectl(ctx context.Context, t *testing.T, args ...string) (output, errors string, err error) {
	t.Helper()
	path, err := testenv.Kubectl()
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	command := exec.CommandContext(ctx, path, append([]string{"--cache-dir=" + t.TempDir()}, args...)...)
	command.Env = append(os.Environ(), "KUBECONFIG="+env.Kubeconfig)
	command.Stdout, command.Stderr = &stdout, &stderr
	err = command.Run()
	return stdout.String(), stderr.String(), err
}

// lines splits the output of kubectl into lines with single spaces.
func lines(output string) []string {
	var lines []string
	for line := range strings.Lines(output) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return lines
}

func TestKubectlGetInputItems(t *testing.T) {
	namespace := env.NewNamespace(t)
	testsession.Make(namespace, "resp_67cc").Request(`{"instructions":"Be\nbrief.","input":[
		{"role":"user","content":"Weather?"},
		{"type":"function_call","call_id":"c1","name":"get_weather","arguments":"{\"city\":\"Lisbon\"}"},
		{"type":"function_call_output","call_id":"c1","output":"sunny"}]}`).Create(t, env.Client)
	output, stderr, err := kubectl(t.Context(), t, "get", "inputitems", "resp_67cc", "-n", namespace)
	if err != nil {
		t.Fatal(err, stderr)
	}
	golden.Check(t, "inputitems", output)

	for _, format := range []string{"json", "yaml"} {
		output, stderr, err := kubectl(t.Context(), t, "get", "inputitems", "resp_67cc", "-n", namespace, "-o", format)
		if err != nil || !strings.Contains(output, "resp_67cc") || !strings.Contains(output, "get_weather") {
			t.Errorf("-o %s: %v\n%s%s", format, err, output, stderr)
		}
	}
	_, stderr, err = kubectl(t.Context(), t, "get", "inputitems", "resp_none", "-n", namespace)
	if want := `Error from server (NotFound): response "resp_none" was not found` + "\n"; err == nil || stderr != want {
		t.Errorf("%v: got %q, want %q", err, stderr, want)
	}
}

// TestKubectlGetConversationTurns: kubectl prints the turns of a conversation, and whether there are more.
func TestKubectlGetConversationTurns(t *testing.T) {
	namespace := env.NewNamespace(t)
	created := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	const turns = 101
	for i := range turns {
		o := testsession.Make(namespace, fmt.Sprintf("resp_%03d", i)).Obj()
		o.Spec.ConversationID, o.Spec.CreatedAt = "conv_1", new(metav1.NewTime(created.Add(time.Duration(turns-i)*time.Second)))
		if i > 99 {
			o.Spec.ConversationID = "conv_2"
		}
		if i == 98 {
			o.Spec.CompletedAt, o.Spec.PreviousResponseID = new(metav1.NewTime(created.Add(time.Hour))), "resp_097"
		}
		if err := env.Client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"RESPONSE PREVIOUS STATUS CREATED COMPLETED",
		"resp_099 completed 2026-11-20T10:00:02Z",
		"resp_098 resp_097 completed 2026-11-20T10:00:03Z 2026-11-20T11:00:00Z",
	}
	testutil.Eventually(t, func(ctx context.Context) error { // the replica that answers has its own watch
		output, stderr, err := kubectl(ctx, t, "get", "conversationturns", "conv_1", "-n", namespace)
		got := lines(output)
		return unless(err == nil && stderr == "" && len(got) == 101 && cmp.Diff(want, got[:3]) == "", fmt.Sprint(err, stderr, output))
	})
	another := testsession.Make(namespace, "resp_999").Obj()
	another.Spec.ConversationID = "conv_1"
	if err := env.Client.Create(t.Context(), another); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, func(ctx context.Context) error {
		output, stderr, err := kubectl(ctx, t, "get", "conversationturns", "conv_1", "-n", namespace)
		got := lines(output)
		return unless(err == nil && len(got) == 101 && got[1] == "resp_999 completed" && strings.HasPrefix(stderr, "Warning: "), fmt.Sprint(err, stderr, output))
	})
	output, stderr, err := kubectl(t.Context(), t, "get", "conversationturns", "conv_9", "-n", namespace, "-o", "yaml")
	if err != nil || !strings.Contains(output, "turns: []") {
		t.Errorf("unknown conversation: %v, %s%s", err, output, stderr)
	}
}

// TestKubectlGetConversationItems: kubectl prints the history of a conversation by its ID and its object name, and what becomes of it.
func TestKubectlGetConversationItems(t *testing.T) {
	namespace := env.NewNamespace(t)
	createChain(t, namespace, "resp", 3)
	conversation := &v1alpha1.Conversation{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "conv.1"},
		Spec:       v1alpha1.ConversationSpec{ConversationID: "conv_1", HeadResponseID: "resp_1"},
	}
	if err := env.Client.Create(t.Context(), conversation); err != nil {
		t.Fatal(err)
	}
	wantTurns := func(want ...string) {
		t.Helper()
		for _, name := range []string{"conv_1", "conv.1"} {
			output, stderr, err := kubectl(t.Context(), t, "get", "conversationitems", name, "-n", namespace)
			if err != nil {
				t.Fatalf("%v: %s", err, stderr)
			}
			var got []string
			for _, line := range lines(output)[1:] {
				got = append(got, strings.Fields(line)[1])
			}
			if got = slices.Compact(got); !slices.Equal(got, want) {
				t.Errorf("%s: got the turns %q, want %q: %s", name, got, want, output)
			}
		}
	}
	wantTurns("resp_0", "resp_1")
	before := conversation.DeepCopy()
	conversation.Spec.HeadResponseID = "resp_2"
	conversation.Spec.HiddenItems = []v1alpha1.HiddenItem{{ResponseID: "resp_1", Number: 0}, {ResponseID: "resp_1", Number: 1}}
	if err := env.Client.Patch(t.Context(), conversation, client.MergeFrom(before)); err != nil { // the operator writes the status meanwhile
		t.Fatal(err)
	}
	wantTurns("resp_0", "resp_2")
	if err := env.Client.Delete(t.Context(), conversation); err != nil {
		t.Fatal(err)
	}
	_, stderr, err := kubectl(t.Context(), t, "get", "conversationitems", "conv_1", "-n", namespace)
	if want := `Error from server (NotFound): conversation "conv_1" does not exist` + "\n"; err == nil || stderr != want {
		t.Errorf("%v: got %q, want %q", err, stderr, want)
	}
}

// TestKubectlGetConversationLists: kubectl prints the conversations of a namespace, those that were created last first.
func TestKubectlGetConversationLists(t *testing.T) {
	namespace := env.NewNamespace(t)
	for id, spec := range map[string]v1alpha1.ConversationSpec{
		"conv_1": {UserID: "maria", Title: "A trip", State: "Active"},
		"conv_2": {UserID: "ada", State: "Archived"},
	} {
		c := &v1alpha1.Conversation{Spec: spec}
		c.Namespace, c.Name, c.Spec.ConversationID = namespace, v1alpha1.ObjectName(id), id
		if err := env.Client.Create(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	const at = "AT"
	times := regexp.MustCompile(`\b2\d{3}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z\b`)
	testutil.Eventually(t, func(ctx context.Context) error { // the replica that answers has its own watch
		output, stderr, err := kubectl(ctx, t, "get", "conversationlists", "all", "-n", namespace)
		got := lines(times.ReplaceAllString(output, at))
		want := []string{"CONVERSATION USER STATE TITLE CREATED ACTIVITY", "conv_1 maria Active A trip " + at + " " + at} // not what is archived
		return unless(err == nil && stderr == "" && cmp.Diff(want, got) == "", fmt.Sprint(err, stderr, output))
	})
	_, stderr, err := kubectl(t.Context(), t, "get", "conversationlists", "-n", namespace)
	if err == nil || !strings.Contains(stderr, "could not find the requested resource") {
		t.Errorf("a list of lists: %v, %s", err, stderr)
	}
}

// TestKubectlGetConversationVerdicts: kubectl prints the verdicts on the conversations of a namespace by name, which are those that the
// operator writes into their statuses.
func TestKubectlGetConversationVerdicts(t *testing.T) {
	namespace := env.NewNamespace(t)
	createChain(t, namespace, "resp", 2)
	for id, spec := range map[string]v1alpha1.ConversationSpec{
		"conv_broken":   {HeadResponseID: "resp_none", UserID: "maria", Title: "A trip"},
		"conv_empty":    {State: "Archived"},
		"conv_intact":   {HeadResponseID: "resp_1"},
		"conv_reserved": {HeadResponseID: "resp_new", BaseResponseID: "resp_1", Reservation: &v1alpha1.Reservation{DurationSeconds: 60}},
	} {
		c := &v1alpha1.Conversation{Spec: spec}
		c.Namespace, c.Name, c.Spec.ConversationID = namespace, v1alpha1.ObjectName(id), id
		if err := env.Client.Create(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"NAME STATE TURNS HEAD VERDICT AGE CONVERSATION",
		"conv.broken Active resp_none ParentNotFound AGE conv_broken",
		"conv.empty Archived NoTurns AGE conv_empty",
		"conv.intact Active 2 resp_1 Resolved AGE conv_intact",
		"conv.reserved Active 2 resp_new HeadReserved AGE conv_reserved",
	}
	age := regexp.MustCompile(`\b(\d+m)?\d+s\b`)
	testutil.Eventually(t, func(ctx context.Context) error { // the replica that answers has its own watches
		output, stderr, err := kubectl(ctx, t, "get", "conversationverdicts", "-n", namespace, "-o", "wide")
		got := lines(age.ReplaceAllString(output, "AGE"))
		return unless(err == nil && stderr == "" && cmp.Diff(want, got) == "", fmt.Sprint(err, stderr, cmp.Diff(want, got)))
	})
	columns := func(ctx context.Context, resource, columns string) string {
		output, stderr, err := kubectl(ctx, t, "get", resource, "-n", namespace, "--no-headers", "-o", "custom-columns="+columns)
		if err != nil {
			t.Error(err, stderr)
		}
		return output
	}
	testutil.Eventually(t, func(ctx context.Context) error { // the status of a reservation is written some seconds later
		verdicts := columns(ctx, "conversationverdicts", ":.metadata.name,:.turns,:.headResolved,:.reason")
		statuses := columns(ctx, "conversations", ":.metadata.name,:.status.turns,:.status.conditions[0].status,:.status.conditions[0].reason")
		return unless(verdicts == statuses, cmp.Diff(statuses, verdicts))
	})
}

func TestKubectlGetSessions(t *testing.T) {
	namespace := env.NewNamespace(t)
	createChain(t, namespace, "resp", 2)
	testsession.Make(namespace, "resp_orphan").After("resp_none").Create(t, env.Client)
	testsession.WaitForReason(t, env.Client, namespace, "resp_1", v1alpha1.ReasonResolved)
	testsession.WaitForReason(t, env.Client, namespace, "resp_orphan", v1alpha1.ReasonParentNotFound)
	output, stderr, err := kubectl(t.Context(), t, "get", "rsess", "-n", namespace)
	if err != nil {
		t.Fatal(err, stderr)
	}
	got := lines(output)
	for i, line := range got {
		got[i] = line[:strings.LastIndex(line, " ")] // without the age
	}
	want := []string{
		"NAME PREVIOUS STATUS CHAIN DEPTH MODEL",
		"resp.0 completed Resolved 1 m",
		"resp.1 resp_0 completed Resolved 2 m",
		"resp.orphan resp_none completed ParentNotFound m",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestDiscovery retries: the aggregation layer loads discovery and OpenAPI after the APIService is available.
func TestDiscovery(t *testing.T) {
	cases := map[string]struct {
		args []string
		want []string
	}{
		"api-resources": {
			args: []string{"api-resources", "--api-group=resolve.catena.dev", "--no-headers", "-o", "wide"},
			want: []string{
				"inputitems resolve.catena.dev/v1alpha1 true InputItems get",
				"sessionverdicts resolve.catena.dev/v1alpha1 true SessionVerdict get,list",
				"conversationturns resolve.catena.dev/v1alpha1 true ConversationTurns get",
				"conversationitems resolve.catena.dev/v1alpha1 true ConversationItems get",
				"conversationlists resolve.catena.dev/v1alpha1 true ConversationLists get",
				"conversationverdicts resolve.catena.dev/v1alpha1 true ConversationVerdict get,list",
			},
		},
		"explain":         {args: []string{"explain", "inputitems"}, want: []string{"GROUP: resolve.catena.dev", "KIND: InputItems", "turns <[]string> -required-"}},
		"explain a field": {args: []string{"explain", "inputitems.responseID"}, want: []string{"FIELD: responseID <string>"}},
		"explain a conversation's history": {
			args: []string{"explain", "conversationitems"}, want: []string{"KIND: ConversationItems", "conversationID <string> -required-", "turns <[]string> -required-"},
		},
		"explain a verdict": {args: []string{"explain", "sessionverdicts.brokenAt"}, want: []string{"FIELD: brokenAt <string>"}},
		"explain a conversation's verdict": {
			args: []string{"explain", "conversationverdicts.headResolved"}, want: []string{"FIELD: headResolved <string>"},
		},
		"explain a session": {
			args: []string{"explain", "responsesession.spec.previousResponseID"},
			want: []string{"FIELD: previousResponseID <string>"},
		},
		"explain a conversation":         {args: []string{"explain", "conversation.spec.headResponseID"}, want: []string{"FIELD: headResponseID <string>"}},
		"explain a conversation's state": {args: []string{"explain", "conv.spec.state"}, want: []string{"FIELD: state <string>", "Archived"}},
		"explain a summary":              {args: []string{"explain", "conversationsummary.spec.startTurn"}, want: []string{"FIELD: startTurn <integer>"}},
		"OpenAPI v3":                     {args: []string{"get", "--raw", "/openapi/v3"}, want: []string{"apis/resolve.catena.dev/v1alpha1"}},
		"OpenAPI v3 of the group": {
			args: []string{"get", "--raw", "/openapi/v3/apis/resolve.catena.dev/v1alpha1"},
			want: []string{"/apis/resolve.catena.dev/v1alpha1/namespaces/{namespace}/inputitems/{name}", "includeIncomplete", "maxDepth"},
		},
		"OpenAPI v2": {args: []string{"get", "--raw", "/openapi/v2"}, want: []string{"dev.catena.resolve.v1alpha1.InputItems"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			testutil.Eventually(t, func(ctx context.Context) error {
				output, stderr, err := kubectl(ctx, t, tc.args...)
				if err != nil {
					return fmt.Errorf("%w: %s", err, stderr)
				}
				output = strings.Join(lines(output), "\n")
				for _, want := range tc.want {
					if !strings.Contains(output, want) {
						return fmt.Errorf("want %s in %s", want, output[:min(len(output), 2000)])
					}
				}
				return nil
			})
		})
	}
}
