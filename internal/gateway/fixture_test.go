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

package gateway

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tidwall/gjson"

	"github.com/catena-dev/catena/internal/gateway/enginetest"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/driver"
	_ "github.com/catena-dev/catena/store/memory"
)

// fixture is a gateway with a client, an engine and a store.
type fixture struct {
	t        testing.TB
	gateway  *Gateway
	registry *prometheus.Registry
	store    *hookedStore
	url      string
	client   *http.Client
	log      *lockedBuffer
	// sent has the bodies and headers of the requests to the engine.
	sent *recorder
}

// start starts a gateway in front of an engine; nil is the scripted one.
func start(t *testing.T, upstream http.Handler, changes ...func(*Options)) *fixture {
	t.Helper()
	if upstream == nil {
		upstream = enginetest.Handler()
	}
	f := newFixture(t, upstream, changes...)
	server := httptest.NewUnstartedServer(f.gateway.Handler())
	server.Config.BaseContext = func(net.Listener) context.Context { return withBase(t.Context()) }
	server.Start()
	t.Cleanup(server.Close)
	f.url = server.URL
	return f
}

// newFixture returns a gateway without a server.
func newFixture(t testing.TB, upstream http.Handler, changes ...func(*Options)) *fixture {
	t.Helper()
	f := &fixture{t: t, client: http.DefaultClient, registry: prometheus.NewRegistry(), store: newHookedStore(t), log: &lockedBuffer{}, sent: &recorder{next: upstream}}
	engine := httptest.NewServer(f.sent)
	t.Cleanup(engine.Close)
	options := DefaultOptions()
	options.ShutdownDelay = 0
	options.Store = f.store.open()
	options.InsecureAllowAnonymous = true
	if err := options.setUpstream(engine.URL); err != nil {
		t.Fatal(err)
	}
	options.Logger = slog.New(slog.NewTextHandler(f.log, nil))
	for _, change := range changes {
		change(&options)
	}
	if err := options.Validate(); err != nil {
		t.Fatal(err)
	}
	var err error
	if f.gateway, err = New(options, f.registry); err != nil {
		t.Fatal(err)
	}
	return f
}

// reply is an HTTP response of the gateway.
type reply struct {
	status int
	header http.Header
	body   string
}

func (r reply) get(path string) string { return gjson.Get(r.body, path).String() }

// code returns the status and the code of an error, as "400 previous_response_not_found".
func (r reply) code() string {
	return strings.TrimSpace(http.StatusText(r.status) + " " + r.get("error.code"))
}

// do sends a request and reads the whole response. Headers are pairs of names and values.
func (f *fixture) do(method, path, body string, headers ...string) reply {
	f.t.Helper()
	r, err := f.try(method, path, body, headers...)
	if err != nil {
		f.t.Error(err)
	}
	return r
}

func (f *fixture) try(method, path, body string, headers ...string) (reply, error) {
	request, err := http.NewRequestWithContext(f.t.Context(), method, f.url+path, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := f.client.Do(request)
	if err != nil {
		return reply{}, err
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	return reply{status: response.StatusCode, header: response.Header, body: string(content)}, err
}

// create creates a response and returns it. It fails the test on any other status than 200.
func (f *fixture) create(body string, headers ...string) reply {
	f.t.Helper()
	r := f.do(http.MethodPost, "/v1/responses", body, headers...)
	if r.status != http.StatusOK {
		f.t.Fatalf("status %d: %s", r.status, r.body)
	}
	return r
}

// eventually waits until a condition holds, and fails the test with what does not if it takes too long.
func (f *fixture) eventually(what string, condition func() bool) {
	f.t.Helper()
	testutil.Eventually(f.t, func(context.Context) error {
		if !condition() {
			return errors.New(what)
		}
		return nil
	})
}

// saved returns the session with a response ID, or nil if it does not exist.
func (f *fixture) saved(id string) *store.Session {
	f.t.Helper()
	session, err := f.store.next.InNamespace("default").Get(f.t.Context(), id)
	if err != nil {
		return nil
	}
	return session
}

// savesByCode returns the code of every save in the metrics of the store.
func (f *fixture) savesByCode() []string {
	f.t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(f.gateway.options.Store.Collector())
	families, err := registry.Gather()
	if err != nil {
		f.t.Fatal(err)
	}
	var codes []string
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			labels := map[string]string{}
			for _, label := range metric.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			if labels["operation"] == "save" {
				codes = append(codes, slices.Repeat([]string{labels["code"]}, int(metric.GetHistogram().GetSampleCount()))...)
			}
		}
	}
	return codes
}

// seed saves a turn as another gateway would.
func (f *fixture) seed(id, previous, status string) {
	f.t.Helper()
	session := testturn.Make(id, previous)
	session.Status = status
	if err := f.store.next.InNamespace("default").Save(f.t.Context(), session, store.SaveOptions{}); err != nil {
		f.t.Fatal(err)
	}
}

// seedLarge saves a turn whose input has the given number of bytes.
func (f *fixture) seedLarge(id string, bytes int) {
	f.t.Helper()
	session := testturn.Make(id, "")
	session.Request = []byte(`{"input":"` + strings.Repeat("x", bytes) + `"}`)
	if err := f.store.next.InNamespace("default").Save(f.t.Context(), session, store.SaveOptions{}); err != nil {
		f.t.Fatal(err)
	}
}

// newHookedStore returns an empty store without hooks.
func newHookedStore(t testing.TB) *hookedStore {
	t.Helper()
	d, options, err := driver.Open(t.Context(), "memory:")
	if err != nil {
		t.Fatal(err)
	}
	return &hookedStore{next: store.New(d, options), Conversations: d.(driver.Conversations)}
}

// open returns the store on top of the hooks.
func (s *hookedStore) open() *store.Store {
	return store.New(s, driver.Options{Namespace: "default"})
}

// hookedStore is an in-memory driver whose calls can be replaced.
type hookedStore struct {
	driver.Conversations
	next               *store.Store
	onSave             func(ctx context.Context, session *store.Session, next func() error) error
	onResolve          func(context.Context) error
	onGet              func() error
	onGetWithoutBodies func() error
	onQuota            func(ctx context.Context, namespace string) error
	onOptions          func(store.SaveOptions)
	// resolved is the number of items that were resolved.
	resolved atomic.Int64
	// cutOff makes updates of conversations fail.
	cutOff atomic.Bool
	// withoutOrigins ignores ResolveOptions.Origins, as a driver that does not know it.
	withoutOrigins bool
}

func (s *hookedStore) Save(ctx context.Context, namespace string, session *store.Session, options store.SaveOptions) (string, error) {
	if s.onOptions != nil {
		s.onOptions(options)
	}
	next := func() error { return s.next.InNamespace(namespace).Save(ctx, session, options) }
	if s.onSave != nil {
		err := s.onSave(ctx, session, next)
		return session.Version, err
	}
	err := next()
	return session.Version, err
}

func (s *hookedStore) Get(ctx context.Context, namespace, id string) (*store.Session, error) {
	if s.onGet != nil {
		if err := s.onGet(); err != nil {
			return nil, err
		}
	}
	return s.next.InNamespace(namespace).Get(ctx, id)
}

func (s *hookedStore) GetWithoutBodies(ctx context.Context, namespace, id string) (*store.Session, error) {
	if s.onGetWithoutBodies != nil {
		if err := s.onGetWithoutBodies(); err != nil {
			return nil, err
		}
	}
	return s.Conversations.GetWithoutBodies(ctx, namespace, id)
}

func (s *hookedStore) Resolve(ctx context.Context, namespace, id string, options store.ResolveOptions) (*store.History, error) {
	if s.onResolve != nil {
		if err := s.onResolve(ctx); err != nil {
			return nil, err
		}
	}
	options.Origins = options.Origins && !s.withoutOrigins
	history, err := s.next.InNamespace(namespace).Resolve(ctx, id, options)
	if err == nil {
		s.resolved.Add(int64(len(history.Items)))
	}
	return history, err
}

func (s *hookedStore) List(ctx context.Context, namespace, id string, options store.ListOptions) (*store.TurnList, error) {
	if options.History {
		return s.next.InNamespace(namespace).Conversations().Turns(ctx, id, options)
	}
	return s.next.InNamespace(namespace).List(ctx, id, options)
}

func (s *hookedStore) Delete(ctx context.Context, namespace, id string, options store.DeleteOptions) error {
	return s.next.InNamespace(namespace).Delete(ctx, id, options)
}

func (s *hookedStore) UpdateConversation(
	ctx context.Context, namespace, id string, update driver.ConversationUpdate,
) (*driver.Conversation, error) {
	if s.cutOff.Load() {
		return nil, &store.Error{Code: store.CodeUnreachable}
	}
	return s.Conversations.UpdateConversation(ctx, namespace, id, update)
}

func (s *hookedStore) CheckQuota(ctx context.Context, namespace string) error {
	if s.onQuota == nil {
		return nil
	}
	return s.onQuota(ctx, namespace)
}

func (s *hookedStore) Close() error { return s.next.Close() }

// recorder records the requests to an engine.
type recorder struct {
	next http.Handler
	// onRequest, if it is set, is called with each request.
	onRequest func()

	mu      sync.Mutex
	bodies  []string
	headers []http.Header
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, _ := io.ReadAll(request.Body)
	if r.onRequest != nil {
		r.onRequest()
	}
	r.mu.Lock()
	r.bodies = append(r.bodies, string(body))
	r.headers = append(r.headers, request.Header)
	r.mu.Unlock()
	request.Body = io.NopCloser(strings.NewReader(string(body)))
	r.next.ServeHTTP(w, request)
}

func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.bodies)
}

// last returns the body and the header of the last request.
func (r *recorder) last() (string, http.Header) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bodies[len(r.bodies)-1], r.headers[len(r.headers)-1]
}

// lockedBuffer is a log that can be read while it is being written.
type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// jsonHandler is an engine that always sends the same response.
func jsonHandler(status int, body string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	})
}
