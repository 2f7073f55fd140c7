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
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/catena-dev/catena/controllers"
	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/operator/conversations"
	"github.com/catena-dev/catena/internal/operator/resolve"
	"github.com/catena-dev/catena/internal/operator/sessions"
	"github.com/catena-dev/catena/internal/operator/sizes"
	"github.com/catena-dev/catena/internal/requests"
	"github.com/catena-dev/catena/internal/snapshot"
	"github.com/catena-dev/catena/internal/testutil"
)

// operator is the controller as internal/operator sets it up, with exactly the rights of config/rbac.
type operator struct {
	view       *sessions.View
	reconciler *controllers.ResponseSessionReconciler
	usage      *controllers.UsageCounter
	quotas     *controllers.SessionQuotaReconciler
	named      *conversations.View
	clock      *clocktesting.FakePassiveClock
	writes     *recorder
	limiter    *requests.Limiter
	cancel     context.CancelFunc
	done       chan struct{}
	err        error // how it ended; to be read after done
	// dropped is the number of sessions that earlier operators had in their queues when they ended.
	dropped float64
}

// startTime is the time of the operator's clock until a test sets another.
var startTime = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)

// statuses are limits so high that no test reaches them, unless it sets others and restarts the operator.
var statuses = controllers.StatusLimits{RewritesPerSecond: 1e6, RewriteBytesPerSecond: 1e12, ValuesPerSecond: 1e12}

// readable is the answer of the store of snapshots, unless a test sets another and restarts the operator.
var readable = func(context.Context, *sessions.Record) (bool, error) { return true, nil }

// workers is the number of sessions that the operator reconciles at once.
const workers = 16

// quotaInterval is the time between two writes of the status of a quota.
var quotaInterval = 100 * time.Millisecond

// conversationInterval is the time between two writes of the status of a conversation.
var conversationInterval time.Duration

// throughResolve wraps the function with which figures are read.
var throughResolve = func(direct controllers.ResolveFunc) controllers.ResolveFunc { return direct }

// turnDeletions is the number of turns per second that are deleted with their conversations, for each namespace.
var turnDeletions = 1e6

// connect returns the configuration with which the operator reaches the API server, unless a test sets another.
var connect = func(config *rest.Config) *rest.Config { return config }

func startOperator(ctx context.Context) (*operator, error) {
	cfg, err := env.ConfigFor(operatorUser, operatorGroups...)
	if err != nil {
		return nil, err
	}
	o := &operator{
		view:    sessions.NewView(chain.DefaultMaxDepth, time.Hour),
		clock:   clocktesting.NewFakePassiveClock(startTime),
		writes:  &recorder{},
		limiter: requests.NewLimiter(requests.Limits{Writes: 2 * workers}),
		done:    make(chan struct{}),
	}
	o.view.OnRelease(releases.add)
	o.named = conversations.NewView(time.Hour, o.clock)
	o.usage = &controllers.UsageCounter{
		Sessions: o.view, Chunks: sizes.NewChunks(), Summaries: sizes.NewSummaries(), Conversations: o.named, MaxNamespaces: 1,
	}
	cfg = connect(cfg)
	cfg.Wrap(o.writes.wrap)
	cfg = o.limiter.Limit(cfg)
	mgr, err := ctrl.NewManager(cfg, manager.Options{
		Scheme:     env.Client.Scheme(),
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)}, // several operators run one after another
	})
	if err != nil {
		return nil, err
	}
	sessionClient, err := kubeclient.New(cfg)
	if err != nil {
		return nil, err
	}
	if err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		o.view.Run(ctx, sessionClient)
		return nil
	})); err != nil {
		return nil, err
	}
	for _, view := range []*sizes.View{o.usage.Chunks, o.usage.Summaries} {
		if err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
			view.Run(ctx, sessionClient)
			return nil
		})); err != nil {
			return nil, err
		}
	}
	if err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		o.named.Run(ctx, sessionClient)
		return nil
	})); err != nil {
		return nil, err
	}
	options := resolve.DefaultOptions()
	reader := resolve.NewReader(sessionClient, snapshot.Stores{snapshot.NewChunkStore(sessionClient)}, options)
	resolver := resolve.New(o.view, reader, func(*sessions.Record) {}, options)
	heads := &controllers.ConversationReconciler{
		Client: mgr.GetClient(), Live: sessionClient, Resolve: throughResolve(resolver.Resolve), Conversations: o.named, Sessions: o.view,
		Interval: conversationInterval, Statuses: statuses, Clock: o.clock,
	}
	if err := heads.SetupWithManager(mgr); err != nil {
		return nil, err
	}
	deleter := &controllers.ConversationDeleter{
		Client: sessionClient, Conversations: o.named, Sessions: o.view,
		Snapshots: snapshot.Stores{snapshot.NewChunkStore(sessionClient)}, Recorder: mgr.GetEventRecorder("catena"),
		EventLimiter: controllers.NewEventLimiter(1e6), TurnsPerSecond: turnDeletions, Clock: o.clock,
	}
	if err := deleter.SetupWithManager(mgr); err != nil {
		return nil, err
	}
	o.quotas = &controllers.SessionQuotaReconciler{
		Client: mgr.GetClient(), Usage: o.usage, Interval: quotaInterval, Clock: o.clock, StallTimeout: stallTimeout,
	}
	if err := o.quotas.SetupWithManager(mgr); err != nil {
		return nil, err
	}
	o.reconciler = &controllers.ResponseSessionReconciler{
		Client:       mgr.GetClient(),
		Live:         mgr.GetAPIReader(),
		View:         o.view,
		Readable:     readable,
		Recorder:     mgr.GetEventRecorder("catena"),
		Concurrency:  workers,
		Statuses:     statuses,
		EventLimiter: controllers.NewEventLimiter(1e6),
		Clock:        o.clock,
		StallTimeout: stallTimeout,
	}
	if err := o.reconciler.SetupWithManager(mgr); err != nil {
		return nil, err
	}
	ctx, o.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(o.done)
		o.err = mgr.Start(ctx)
	}()
	return o, nil
}

func (o *operator) stop() {
	o.cancel()
	<-o.done
}

// recorder records the writes that the operator sends to the API server.
type recorder struct {
	mu    sync.Mutex
	paths []string
	// held is the channel that writes wait for, whatever their deadline is; nil if they do not wait.
	held chan struct{}
	// waiting is the number of writes that wait.
	waiting atomic.Int32
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

func (r *recorder) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		if request.Method != http.MethodGet {
			r.mu.Lock()
			r.paths = append(r.paths, request.URL.Path)
			held := r.held
			r.mu.Unlock()
			if held != nil {
				r.waiting.Add(1)
				<-held
				r.waiting.Add(-1)
			}
		}
		return next.RoundTrip(request)
	})
}

// hold blocks all writes until release is called.
func (r *recorder) hold() (release func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	held := make(chan struct{})
	r.held = held
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.held != nil {
			close(held)
		}
		r.held = nil
	}
}

// awaitHeld waits until a write is blocked by hold.
func (r *recorder) awaitHeld(t *testing.T) {
	t.Helper()
	testutil.Eventually(t, func(context.Context) error {
		if r.waiting.Load() == 0 {
			return errors.New("nothing is being written")
		}
		return nil
	})
}

// sessions returns the writes to ResponseSessions of a namespace, as NAME or NAME/status, sorted. If no
// namespace is given, it returns those of all namespaces.
func (r *recorder) sessions(namespace string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	writes := []string{}
	for _, path := range r.paths {
		in, name, found := strings.Cut(strings.TrimPrefix(path, "/apis/sessions.catena.dev/v1alpha1/namespaces/"), "/responsesessions/")
		if found && (namespace == "" || in == namespace) {
			writes = append(writes, name)
		}
	}
	slices.Sort(writes)
	return writes
}

// to returns the number of writes to a path that ends with suffix.
func (r *recorder) to(suffix string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	writes := 0
	for _, path := range r.paths {
		if strings.HasSuffix(path, suffix) {
			writes++
		}
	}
	return writes
}
