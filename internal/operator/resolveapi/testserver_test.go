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

package resolveapi

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/operator/conversations"
	"github.com/catena-dev/catena/internal/operator/resolve"
	"github.com/catena-dev/catena/internal/operator/sessions"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testsession"
)

// created is when the sessions were created.
var created = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)

// stored are the sessions in the kube-apiserver: a chain, a turn without its parent, and a turn of another namespace.
var stored = []*v1alpha1.ResponseSession{
	testsession.Make("team-a", "resp_1").Obj(),
	testsession.Make("team-a", "resp_2").After("resp_1").Status("in_progress").Obj(),
	testsession.Make("team-a", "resp_9").After("resp_8\x1b[31m").Obj(),
	testsession.Make("team-b", "resp_1").Obj(),
}

// storedConversations are the Conversations in the kube-apiserver: two of a namespace, a descendant, one that is being deleted, and one of
// another namespace whose head is not stored.
var storedConversations = []*v1alpha1.Conversation{
	newConversation("team-a", "conv_1", v1alpha1.ConversationSpec{UserID: "maria", State: "Active", Title: "A\ttrip\x1b[31m", HeadResponseID: "resp_2"}),
	newConversation("team-a", "conv_2", v1alpha1.ConversationSpec{UserID: "ada", State: "Archived"}),
	newConversation("team-a", "conv_3", v1alpha1.ConversationSpec{State: "Active", ParentConversationID: "conv_2"}),
	deleted(newConversation("team-a", "conv_4", v1alpha1.ConversationSpec{State: "Active"})),
	newConversation("team-b", "conv_9", v1alpha1.ConversationSpec{State: "Active", HeadResponseID: "resp_8"}),
}

func newConversation(namespace, id string, spec v1alpha1.ConversationSpec) *v1alpha1.Conversation {
	c := &v1alpha1.Conversation{Spec: spec}
	c.Namespace, c.Name, c.Spec.ConversationID = namespace, v1alpha1.ObjectName(id), id
	return c
}

func deleted(c *v1alpha1.Conversation) *v1alpha1.Conversation {
	c.DeletionTimestamp = new(metav1.NewTime(created))
	return c
}

func init() {
	for i, of := range []string{"conv_1", "conv_1", "conv.1", "conv_1"} {
		spec := &stored[i].Spec
		spec.ConversationID, spec.CreatedAt = of, new(metav1.NewTime(created.Add(-time.Duration(i)*time.Hour)))
	}
	stored[0].Spec.CompletedAt = new(metav1.NewTime(created.Add(time.Second)))
}

// kubeAPIServer is the part of a kube-apiserver that the server and its view use.
type kubeAPIServer struct {
	*httptest.Server
	// reviews is the number of SubjectAccessReviews.
	reviews atomic.Int64
}

// newKubeAPIServer starts a server. alice, whose token is "alice", may read team-a and one turn of team-c, and list the verdicts of all
// namespaces.
func newKubeAPIServer(t testing.TB) *kubeAPIServer {
	t.Helper()
	server := &kubeAPIServer{}
	answer := func(w http.ResponseWriter, req *http.Request, review any, decide func()) {
		if err := json.NewDecoder(req.Body).Decode(review); err != nil {
			t.Errorf("Unable to read a review: %v", err)
		}
		decide()
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(review); err != nil {
			t.Errorf("Unable to write a review: %v", err)
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /apis/authentication.k8s.io/v1/tokenreviews", func(w http.ResponseWriter, req *http.Request) {
		review := &authenticationv1.TokenReview{}
		answer(w, req, review, func() {
			review.Status.Authenticated = review.Spec.Token == "alice"
			review.Status.User.Username = review.Spec.Token
		})
	})
	mux.HandleFunc("POST /apis/authorization.k8s.io/v1/subjectaccessreviews", func(w http.ResponseWriter, req *http.Request) {
		server.reviews.Add(1)
		review := &authorizationv1.SubjectAccessReview{}
		answer(w, req, review, func() {
			r := review.Spec.ResourceAttributes
			review.Status.Allowed = review.Spec.User == "alice" && (r == nil || r.Group == "resolve.catena.dev" &&
				(r.Namespace == "team-a" && r.Verb == "get" ||
					r.Namespace == "team-c" && r.Verb == "get" && r.Name == "resp_1" ||
					r.Namespace != "team-b" && r.Verb == "list" && strings.HasSuffix(r.Resource, "verdicts")))
		})
	})
	mux.HandleFunc("GET /apis/sessions.catena.dev/v1alpha1/responsesessions", func(w http.ResponseWriter, req *http.Request) {
		for i, s := range stored {
			event := s.DeepCopy()
			event.UID, event.CreationTimestamp = types.UID(testUID), metav1.NewTime(created)
			event.Generation, event.ResourceVersion = 1, strconv.Itoa(i+1)
			send(t, w, watch.Added, event)
		}
		end := &metav1.PartialObjectMetadata{}
		end.ResourceVersion, end.Annotations = lastVersion, map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		send(t, w, watch.Bookmark, end)
		<-req.Context().Done()
	})
	mux.HandleFunc("GET /apis/sessions.catena.dev/v1alpha1/conversations", func(w http.ResponseWriter, req *http.Request) {
		for i, c := range storedConversations {
			event := c.DeepCopy()
			event.UID, event.CreationTimestamp = types.UID(testUID), metav1.NewTime(created.Add(time.Duration(i)*time.Minute))
			event.Generation, event.ResourceVersion = 1, strconv.Itoa(i+1)
			event.Status.LastActivityTime = new(metav1.NewTime(created.Add(time.Duration(10-i) * time.Hour)))
			send(t, w, watch.Added, event)
		}
		end := &metav1.PartialObjectMetadata{}
		end.ResourceVersion, end.Annotations = lastVersion, map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		send(t, w, watch.Bookmark, end)
		<-req.Context().Done()
	})
	server.Server = httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server
}

// lastVersion is the resource version up to which the kube-apiserver has sent all changes.
const lastVersion = "7"

// send writes an event of a watch.
func send(t testing.TB, w http.ResponseWriter, kind watch.EventType, object any) {
	t.Helper()
	if err := json.NewEncoder(w).Encode(map[string]any{"type": kind, "object": object}); err != nil {
		t.Errorf("Unable to write an event: %v", err)
	}
	w.(http.Flusher).Flush()
}

// closeServer closes a server and its connections, including the watch of a view.
func closeServer(server *kubeAPIServer) {
	_ = server.Listener.Close()
	server.CloseClientConnections()
	server.Close()
}

// newView returns a view of the sessions whose watch runs until the end of the test.
func newView(t testing.TB, kube *kubeAPIServer, silence time.Duration) *sessions.View {
	t.Helper()
	view := sessions.NewView(64, silence)
	runView(t, kube, view)
	return view
}

// newNamedView returns a view of the Conversations whose watch runs until the end of the test.
func newNamedView(t testing.TB, kube *kubeAPIServer, silence time.Duration) *conversations.View {
	t.Helper()
	view := conversations.NewView(silence, clock.RealClock{})
	runView(t, kube, view)
	return view
}

func runView(t testing.TB, kube *kubeAPIServer, view interface {
	Run(ctx context.Context, client rest.Interface)
	WaitForSync(ctx context.Context) error
},
) {
	t.Helper()
	client, err := kubeclient.New(&rest.Config{Host: kube.URL})
	if err != nil {
		t.Fatalf("Unable to make a client: %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		view.Run(ctx, client)
	}()
	t.Cleanup(func() {
		stop()
		<-done
	})
	if err := view.WaitForSync(t.Context()); err != nil {
		t.Fatalf("The view has not synced: %v", err)
	}
}

// testServer is a running server.
type testServer struct {
	*Server
	url    string
	client *http.Client
	kube   *kubeAPIServer
	stop   context.CancelFunc
	done   chan error
}

// startServer starts a server and waits until it is ready.
func startServer(t testing.TB, resolve ResolveFunc) *testServer {
	t.Helper()
	kube := newKubeAPIServer(t)
	ts := startServerOf(t, kube, newView(t, kube, time.Hour), resolve)
	testutil.Eventually(t, func(context.Context) error { return ts.Ready(nil) })
	testutil.Eventually(t, func(context.Context) error { // k8s.io/apiserver's own hooks may still be running
		if code, _, body := ts.get(t, "/readyz", "", ""); code != http.StatusOK {
			return fmt.Errorf("not ready: %d %s", code, body)
		}
		return nil
	})
	return ts
}

// startServerOf starts a server of a view, and waits until it serves.
func startServerOf(t testing.TB, kube *kubeAPIServer, view *sessions.View, resolve ResolveFunc) *testServer {
	t.Helper()
	ts := &testServer{kube: kube, done: make(chan error, 1)}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	err := os.WriteFile(kubeconfig, fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Config","current-context":"c",
		"clusters":[{"name":"c","cluster":{"server":%q}}],"contexts":[{"name":"c","context":{"cluster":"c"}}]}`, ts.kube.URL), 0o600)
	if err != nil {
		t.Fatalf("Unable to write the kubeconfig: %v", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("Unable to listen: %v", err)
	}

	o := NewOptions()
	o.SecureServing.Listener = listener
	o.Authentication.RemoteKubeConfigFile = kubeconfig
	o.Authentication.SkipInClusterLookup = true
	o.Authentication.WebhookRetryBackoff.Steps = 1
	o.Authorization.RemoteKubeConfigFile = kubeconfig
	o.Authorization.WebhookRetryBackoff.Steps = 1
	o.ShutdownDelay = 300 * time.Millisecond
	if ts.Server, err = New(o, resolve, conversationStub(t), shareAll, view, newNamedView(t, kube, time.Hour)); err != nil {
		t.Fatalf("Unable to make the server: %v", err)
	}
	if ts.Ready(nil) == nil {
		t.Error("The server is ready before it was started")
	}

	ctx, stop := context.WithCancel(t.Context())
	ts.stop = stop
	go func() { ts.done <- ts.Start(ctx) }()
	t.Cleanup(stop)
	ts.url = "https://" + listener.Addr().String()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	ts.client = &http.Client{Transport: transport}
	testutil.Eventually(t, func(context.Context) error {
		if !ts.started.Load() {
			return errors.New("not started")
		}
		return ts.clientCAs.check(nil)
	})
	return ts
}

const (
	inputItems           = "/apis/resolve.catena.dev/v1alpha1/namespaces/team-a/inputitems/"
	sessionVerdicts      = "/apis/resolve.catena.dev/v1alpha1/namespaces/team-a/sessionverdicts"
	conversationsOf      = "/apis/resolve.catena.dev/v1alpha1/namespaces/team-a/conversationturns/"
	itemsOf              = "/apis/resolve.catena.dev/v1alpha1/namespaces/team-a/conversationitems/"
	lists                = "/apis/resolve.catena.dev/v1alpha1/namespaces/team-a/conversationlists/"
	conversationVerdicts = "/apis/resolve.catena.dev/v1alpha1/namespaces/team-a/conversationverdicts"
)

// shareAll is a ShareFunc without limits.
func shareAll(_ context.Context, _ string, _ resolve.Share, compute func()) (release func(), err error) {
	compute()
	return func() {}, nil
}

// get returns the HTTP code, the header and the body of an answer.
func (ts *testServer) get(t testing.TB, path, token, accept string) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, ts.url+path, nil)
	if err != nil {
		t.Fatalf("Unable to make a request: %v", err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	response, err := ts.client.Do(req)
	if err != nil {
		t.Fatalf("Unable to get %s: %v", path, err)
	}
	body, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		t.Fatalf("Unable to read the answer of %s: %v", path, err)
	}
	return response.StatusCode, response.Header, string(body)
}
