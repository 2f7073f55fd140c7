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
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testsession"
)

// newReader returns the config of a user who may get input items in one namespace, and nothing else.
func newReader(t *testing.T, namespace string) *rest.Config {
	t.Helper()
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "items-reader"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"resolve.catena.dev"}, Resources: []string{"inputitems"}, Verbs: []string{"get"}}},
	}
	if err := env.Client.Create(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	return env.NewUser(t, "reader", namespace, "Role", role.Name)
}

// routes returns clients for both routes to the resolve API, which must apply the same authorization.
func routes(t *testing.T, config *rest.Config) map[string]api {
	t.Helper()
	return map[string]api{"aggregated": newAPI(t, config), "direct": direct(t, config, operator)}
}

func TestReaderOfOneNamespace(t *testing.T) {
	mine, theirs, absent := env.NewNamespace(t), env.NewNamespace(t), "e2e-no-such-namespace"
	createChain(t, mine, "resp", 2)
	createChain(t, theirs, "resp", 2)
	testsession.Make(theirs, "resp_broken").After("resp_none").Create(t, env.Client)
	config := newReader(t, mine)
	testutil.Eventually(t, func(ctx context.Context) error { // the API server receives roles through a watch
		response, err := newAPI(t, config).do(ctx, itemsPath(mine, "resp_1", ""), "")
		return unless(err == nil && response.code == http.StatusOK, fmt.Sprint(response.code, err))
	})
	for route, a := range routes(t, config) {
		t.Run(route, func(t *testing.T) {
			if diff := a.resolve(t, mine, "resp_1", "").history(t).check([]string{"resp_0", "resp_1"}, testutil.Items("resp_0", "resp_1")); diff != "" {
				t.Error(diff)
			}
			a.resolve(t, mine, "resp_none", "").wantChainError(t, "resp_none", notFound("resp_none"))

			var first []byte
			for _, request := range []struct{ namespace, id, query string }{
				{theirs, "resp_1", ""}, {theirs, "resp.1", ""}, {theirs, "resp_none", ""}, {theirs, "resp_broken", ""},
				{theirs, "resp_1", "maxDepth=0"}, {theirs, "resp_none", "maxDepth=-1"}, {theirs, "resp_1", "maxDepth=-1"},
				{absent, "resp_1", ""},
			} {
				response := a.resolve(t, request.namespace, request.id, request.query)
				if response.code != http.StatusForbidden {
					t.Fatalf("%v: got %d, want 403: %s", request, response.code, response.body)
				}
				body := bytes.ReplaceAll(bytes.ReplaceAll(response.body, []byte(request.id), []byte("ID")), []byte(request.namespace), []byte("NAMESPACE"))
				if first == nil {
					first = body
				}
				if !bytes.Equal(first, body) {
					t.Errorf("%v: the response differs from the others: %s, want %s", request, body, first)
				}
			}
		})
	}
	sessions := userClient(t, config)
	if err := sessions.List(t.Context(), &v1alpha1.ResponseSessionList{}, client.InNamespace(mine)); !apierrors.IsForbidden(err) {
		t.Errorf("list of sessions by a reader of items: %v, want Forbidden", err)
	}
}

func TestUnauthorized(t *testing.T) {
	namespace := env.NewNamespace(t)
	createChain(t, namespace, "resp", 1)
	anonymous := rest.AnonymousClientConfig(env.Config)
	badToken := rest.AnonymousClientConfig(env.Config)
	badToken.BearerToken = "not-a-token"
	noRights, err := env.ConfigFor("nobody")
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		config   *rest.Config
		wantCode int
	}{
		"anonymous": {config: anonymous, wantCode: http.StatusForbidden},
		"bad token": {config: badToken, wantCode: http.StatusUnauthorized},
		"no rights": {config: noRights, wantCode: http.StatusForbidden},
	}
	for name, tc := range cases {
		for route, a := range routes(t, tc.config) {
			t.Run(name+", "+route, func(t *testing.T) {
				existing, missing := a.resolve(t, namespace, "resp_0", ""), a.resolve(t, namespace, "resp_1", "")
				if existing.code != tc.wantCode || !bytes.Equal(bytes.ReplaceAll(existing.body, []byte("resp_0"), []byte("resp_1")), missing.body) {
					t.Errorf("got %d and %d, want %d twice: %s %s", existing.code, missing.code, tc.wantCode, existing.body, missing.body)
				}
				existing.wantStatus(t)
			})
		}
	}
}

// TestForgedHeaders checks that identity headers are trusted only in requests of the aggregation layer.
func TestForgedHeaders(t *testing.T) {
	namespace := env.NewNamespace(t)
	createChain(t, namespace, "resp", 1)
	unprivileged, err := env.ConfigFor("nobody")
	if err != nil {
		t.Fatal(err)
	}
	for name, config := range map[string]*rest.Config{"anonymous": rest.AnonymousClientConfig(env.Config), "user without rights": unprivileged} {
		for route, a := range routes(t, config) {
			t.Run(name+", "+route, func(t *testing.T) {
				request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.base+itemsPath(namespace, "resp_0", ""), nil)
				if err != nil {
					t.Fatal(err)
				}
				request.Header.Set("X-Remote-User", "admin")
				request.Header.Set("X-Remote-Group", "system:masters")
				response, err := a.client.Do(request)
				if err != nil {
					t.Fatal(err)
				}
				_ = response.Body.Close()
				if response.StatusCode != http.StatusForbidden {
					t.Errorf("got %d, want 403", response.StatusCode)
				}
			})
		}
	}
}

// TestAggregatedRoles: the roles view, edit and admin can see verdicts, only edit and admin can read conversations, and
// none of them can write a status.
func TestAggregatedRoles(t *testing.T) {
	namespace, other := env.NewNamespace(t), env.NewNamespace(t)
	createChain(t, namespace, "resp", 2)
	createChain(t, other, "resp", 2)
	cases := map[string]struct{ mayEdit bool }{"view": {}, "edit": {mayEdit: true}, "admin": {mayEdit: true}}
	for role, tc := range cases {
		t.Run(role, func(t *testing.T) {
			config := env.NewUser(t, role, namespace, "ClusterRole", role)
			reads, sessions := newAPI(t, config), userClient(t, config)
			testutil.Eventually(t, func(ctx context.Context) error {
				response, err := reads.do(ctx, verdictsPath(namespace), "")
				return unless(err == nil && response.code == http.StatusOK, fmt.Sprint(response.code, err))
			})
			allowed := func(what string, err error, want bool) {
				t.Helper()
				if want && err != nil || !want && !apierrors.IsForbidden(err) {
					t.Errorf("%s: %v, want it allowed: %t", what, err, want)
				}
			}
			list, chunks := &v1alpha1.ResponseSessionList{}, &v1alpha1.SnapshotChunkList{}
			allowed("list of sessions", sessions.List(t.Context(), list, client.InNamespace(namespace)), tc.mayEdit)
			allowed("list of chunks", sessions.List(t.Context(), chunks, client.InNamespace(namespace)), tc.mayEdit)
			allowed("list in another namespace", sessions.List(t.Context(), list, client.InNamespace(other)), false)
			allowed("create", sessions.Create(t.Context(), testsession.Make(namespace, "resp_by_"+role).Obj()), tc.mayEdit)
			status := testsession.Make(namespace, "resp_0").Obj()
			patch := client.RawPatch("application/merge-patch+json", []byte(`{"status":{"depth":7}}`))
			allowed("patch of a status", sessions.Status().Patch(t.Context(), status, patch), false)

			conversation := &v1alpha1.Conversation{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "conv.by." + role}, Spec: v1alpha1.ConversationSpec{ConversationID: "conv_by_" + role},
			}
			allowed("list of conversations", sessions.List(t.Context(), &v1alpha1.ConversationList{}, client.InNamespace(namespace)), tc.mayEdit)
			allowed("list of summaries", sessions.List(t.Context(), &v1alpha1.ConversationSummaryList{}, client.InNamespace(namespace)), tc.mayEdit)
			allowed("create of a conversation", sessions.Create(t.Context(), conversation), tc.mayEdit)
			turns := client.RawPatch("application/merge-patch+json", []byte(`{"status":{"turns":7}}`))
			allowed("patch of the status of a conversation", sessions.Status().Patch(t.Context(), conversation, turns), false)

			chunk := &v1alpha1.SnapshotChunk{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "chunk"}}
			allowed("patch of a chunk", sessions.Patch(t.Context(), chunk, patch), false)

			wantItems := map[bool]int{true: http.StatusOK, false: http.StatusForbidden}[tc.mayEdit]
			for path, want := range map[string]int{
				itemsPath(namespace, "resp_1", ""):                       wantItems,
				itemsPath(other, "resp_1", ""):                           http.StatusForbidden,
				conversationPath(namespace, "conv_1"):                    wantItems,
				conversationPath(other, "conv_1"):                        http.StatusForbidden,
				conversationItemsPath(namespace, "conv_by_"+role):        wantItems,
				conversationItemsPath(other, "conv_1"):                   http.StatusForbidden,
				verdictsPath(namespace) + "/resp.1":                      http.StatusOK,
				verdictsPath(namespace) + "?watch=1":                     http.StatusForbidden,
				verdictsPath(other):                                      http.StatusForbidden,
				"/apis/resolve.catena.dev/v1alpha1/sessionverdicts":      http.StatusForbidden,
				verdictsPath(other) + "/resp.1":                          http.StatusForbidden,
				conversationVerdictsPath(namespace):                      http.StatusOK,
				conversationVerdictsPath(namespace) + "/conv.none":       http.StatusNotFound,
				conversationVerdictsPath(namespace) + "?watch=1":         http.StatusForbidden,
				conversationVerdictsPath(other):                          http.StatusForbidden,
				conversationVerdictsPath(other) + "/conv.none":           http.StatusForbidden,
				"/apis/resolve.catena.dev/v1alpha1/conversationverdicts": http.StatusForbidden,
				verdictsPath(other) + "/does-not-exist":                  http.StatusForbidden,
			} {
				response, err := reads.do(t.Context(), path, "")
				if err != nil || response.code != want {
					t.Errorf("GET %s: %d, %v, want %d", path, response.code, err, want)
				}
			}
		})
	}
}

// TestAuditor: with the ClusterRole view, kubectl shows which chains and conversations are intact and where the other chains are broken,
// but neither the text of turns and conversations nor their users.
func TestAuditor(t *testing.T) {
	namespace := env.NewNamespace(t)
	createChain(t, namespace, "resp", 2)
	orphan := testsession.Make(namespace, "resp_orphan").After("resp_none")
	orphan.Obj().Spec.ConversationID = "secret conversation"
	orphan.Create(t, env.Client)
	testsession.WaitForReason(t, env.Client, namespace, "resp_orphan", v1alpha1.ReasonParentNotFound)
	conversation := &v1alpha1.Conversation{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "conv.1"},
		Spec: v1alpha1.ConversationSpec{
			ConversationID: "conv_1", HeadResponseID: "resp_1", ParentConversationID: "secret parent",
			UserID: "secret user", Title: "secret title", SystemPrompt: "secret prompt",
			Metadata: &runtime.RawExtension{Raw: []byte(`{"secret":1}`)},
		},
	}
	if err := env.Client.Create(t.Context(), conversation); err != nil {
		t.Fatal(err)
	}
	env.NewUser(t, "auditor", namespace, "ClusterRole", "view")
	kubeconfig, err := env.KubeconfigFor("auditor-" + namespace)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"NAME PREVIOUS STATUS CHAIN DEPTH AGE ROOT BROKEN-AT",
		"resp.0 completed Resolved 1 AGE resp_0",
		"resp.1 resp_0 completed Resolved 2 AGE resp_0",
		"resp.orphan resp_none completed ParentNotFound AGE resp_none",
	}
	testutil.Eventually(t, func(ctx context.Context) error { // the replica that answers has its own watch
		output, stderr, err := kubectl(ctx, t, "--kubeconfig="+kubeconfig, "get", "sessionverdicts", "-n", namespace, "-o", "wide")
		age := regexp.MustCompile(`\b(\d+m)?\d+s\b`)
		got := lines(age.ReplaceAllString(output, "AGE"))
		return unless(err == nil && cmp.Diff(want, got) == "", fmt.Sprint(err, stderr, cmp.Diff(want, got)))
	})
	for _, args := range [][]string{
		{"get", "responsesessions"}, {"get", "snapshotchunks"}, {"get", "conversations"}, {"get", "conversationsummaries"},
		{"get", "inputitems", "resp_1"}, {"get", "conversationturns", "conv_1"}, {"get", "conversationitems", "conv_1"}, {"get", "conversationlists", "all"},
	} {
		output, stderr, err := kubectl(t.Context(), t, append(args, "--kubeconfig="+kubeconfig, "-n", namespace)...)
		if err == nil || !strings.Contains(stderr, "Forbidden") {
			t.Errorf("%v: %v, %s%s, want Forbidden", args, err, output, stderr)
		}
	}
	for resource, want := range map[string]string{"sessionverdicts": "resp_none", "conversationverdicts": `"turns": 2`} {
		testutil.Eventually(t, func(ctx context.Context) error {
			output, stderr, err := kubectl(ctx, t, "--kubeconfig="+kubeconfig, "get", resource, "-n", namespace, "-o", "json")
			for _, text := range []string{"question of", "answer of", "secret"} { // the text of the turns, and what describes the conversation
				if strings.Contains(output, text) {
					t.Errorf("%s contain text: %s", resource, output)
				}
			}
			return unless(err == nil && strings.Contains(output, want), fmt.Sprint(resource, err, output, stderr))
		})
	}
}

// TestServiceAccountToken checks that both routes accept a token, which the operator must have reviewed.
func TestServiceAccountToken(t *testing.T) {
	namespace := env.NewNamespace(t)
	ids := createChain(t, namespace, "resp", 2)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "gateway"}}
	token := &authenticationv1.TokenRequest{}
	if err := env.Client.Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	if err := env.Client.SubResource("token").Create(t.Context(), account, token); err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(env.Config)
	config.BearerToken = token.Status.Token
	for route, a := range routes(t, config) {
		if response := a.resolve(t, namespace, ids[0], ""); response.code != http.StatusForbidden {
			t.Errorf("%s, without a role: got %d, want 403: %s", route, response.code, response.body)
		}
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "catena-reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account.Name}},
	}
	if err := env.Client.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	for route, a := range routes(t, config) {
		testutil.Eventually(t, func(ctx context.Context) error { // denials are cached for 10 s
			err := checkHistory(ctx, a, namespace, "", ids...)
			return unless(err == nil, fmt.Sprint(route, ": ", err))
		})
	}
}

func userClient(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(config, client.Options{Scheme: env.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// unless returns an error that describes the unmet condition, unless ok is true.
func unless(ok bool, missing string) error {
	if ok {
		return nil
	}
	return errors.New("not yet: " + missing)
}
