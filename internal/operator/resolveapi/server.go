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
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	resolvev1alpha1 "github.com/catena-dev/catena/api/resolve/v1alpha1"
	"github.com/catena-dev/catena/internal/operator/conversations"
	"github.com/catena-dev/catena/internal/operator/sessions"
)

// Server serves the resolve API. It runs on every replica, so it needs no leader election.
type Server struct {
	generic   *genericapiserver.GenericAPIServer
	view      *sessions.View
	started   atomic.Bool // accepts connections
	stopping  atomic.Bool // is shutting down
	clientCAs *clientCAs
	// connections is the number of connections that one address may have.
	connections int
}

var (
	_ manager.Runnable               = &Server{}
	_ manager.LeaderElectionRunnable = &Server{}
)

// New returns a server with valid options that serves the histories of turns and of conversations that resolve and resolveConversation
// return, and the verdicts and lists of the views, for which it calls share. It listens, but does not respond before Start, and it is not ready
// until the view has read the sessions.
func New(
	o *Options, resolve, resolveConversation ResolveFunc, share ShareFunc, view *sessions.View, named *conversations.View,
) (*Server, error) {
	config := newGenericConfig()
	if err := o.applyTo(config); err != nil {
		return nil, err
	}
	config.RequestInfoResolver = withoutQuery{genericapiserver.NewRequestInfoResolver(config)}
	limits := newLimits(o)
	limits.useProxy(config.Authentication.RequestHeaderConfig, o.Authentication.CacheTTL)
	noteFailures(config, limits)
	clientCAs, err := newClientCAs(o, config)
	if err != nil {
		return nil, err
	}
	s := &Server{view: view, clientCAs: clientCAs, connections: o.Connections}
	config.BuildHandlerChainFunc = func(api http.Handler, c *genericapiserver.Config) http.Handler {
		return checkRequest(s.sendElsewhere(limits.share(clientCAs.guard(withFailures(genericapiserver.DefaultBuildHandlerChain(withRequestID(withHandled(withConditions(api))), c))))))
	}
	config.AddReadyzChecks(healthz.NamedCheck("sessions-synced", s.synced), healthz.NamedCheck("client-cas", clientCAs.check))

	s.generic, err = config.Complete(nil).New("catena-resolve", genericapiserver.NewEmptyDelegate())
	if err != nil {
		return nil, fmt.Errorf("unable to create the resolve API server: %w", err)
	}
	group := genericapiserver.NewDefaultAPIGroupInfo(resolvev1alpha1.GroupVersion.Group, scheme, parameterCodec, codecFactory)
	group.NegotiatedSerializer = codecs
	group.VersionedResourcesStorageMap[resolvev1alpha1.GroupVersion.Version] = map[string]rest.Storage{
		resolvev1alpha1.Resource: &storage{
			resource: resolvev1alpha1.Resource, empty: &resolvev1alpha1.InputItems{}, resolve: resolve,
			defaultMaxDepth: o.DefaultMaxDepth, maxDepthLimit: o.MaxDepthLimit,
		},
		resolvev1alpha1.ConversationItemsResource: &storage{
			resource: resolvev1alpha1.ConversationItemsResource, empty: &resolvev1alpha1.ConversationItems{}, resolve: resolveConversation,
			defaultMaxDepth: o.DefaultMaxDepth, maxDepthLimit: o.MaxDepthLimit,
		},
		resolvev1alpha1.VerdictsResource:             newSessionVerdicts(view, share),
		resolvev1alpha1.ConversationVerdictsResource: newConversationVerdicts(named, view, share),
		resolvev1alpha1.ConversationsResource: &conversationTurns{
			view: view, share: share, resolve: resolveConversation, maxDepth: int(o.MaxDepthLimit),
		},
		resolvev1alpha1.ConversationListsResource: &conversationLists{view: named, share: share},
	}
	if err := s.generic.InstallAPIGroup(&group); err != nil {
		return nil, fmt.Errorf("unable to install the API group %s: %w", resolvev1alpha1.GroupVersion.Group, err)
	}
	// Those of the whole process, behind the API's authentication and authorization.
	s.generic.Handler.NonGoRestfulMux.Handle("/metrics", promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{}))
	err = s.generic.AddPostStartHook("catena-started", func(genericapiserver.PostStartHookContext) error {
		s.started.Store(true)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("unable to add the post-start hook of the resolve API server: %w", err)
	}
	return s, nil
}

// newGenericConfig returns the part of the configuration that does not depend on options. Its own metrics have another registry.
func newGenericConfig() *genericapiserver.Config {
	config := genericapiserver.NewConfig(codecFactory)
	namer := openapinamer.NewDefinitionNamer(scheme)
	config.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(definitions, namer)
	config.OpenAPIConfig.Info.Title = "Catena resolve API"
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(definitions, namer)
	config.OpenAPIV3Config.Info.Title = config.OpenAPIConfig.Info.Title
	config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	config.FeatureGate = utilfeature.DefaultFeatureGate
	config.EnableIndex = false
	config.EnableProfiling = false
	config.EnableMetrics = false
	config.LongRunningFunc = func(*http.Request, *request.RequestInfo) bool { return false } // so that all requests have a deadline
	config.MaxRequestsInFlight, config.MaxMutatingRequestsInFlight = 0, 0                    // one client could use them up: see limits
	// Requests that arrive after the delay are sent elsewhere while earlier ones are finished.
	config.ShutdownSendRetryAfter = true
	return config
}

// withoutQuery ignores the query when it resolves the RequestInfo, on which authorization is based. k8s.io/apiserver logs queries that it cannot
// decode, even of clients that are not authenticated. It also includes selectors in SubjectAccessReviews and caches each answer. Without the
// selector, the caller needs the right to list everything, which is stricter.
type withoutQuery struct{ request.RequestInfoResolver }

// NewRequestInfo implements request.RequestInfoResolver.
func (r withoutQuery) NewRequestInfo(req *http.Request) (*request.RequestInfo, error) {
	bare, location := *req, *req.URL
	location.RawQuery, bare.URL = "", &location
	return r.RequestInfoResolver.NewRequestInfo(&bare)
}

// NeedLeaderElection returns false: every replica serves.
func (*Server) NeedLeaderElection() bool { return false }

// Start serves until ctx is done. Then it is no longer ready, waits for the shutdown delay, finishes the requests in
// flight and returns nil. It returns an error if it cannot serve.
func (s *Server) Start(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { s.stopping.Store(true) })()
	if err := s.run(ctx); err != nil {
		return fmt.Errorf("unable to serve the resolve API: %w", err)
	}
	return nil
}

// sendElsewhere ends connections while the server is shutting down, after their present requests. The kube-apiserver would otherwise use its
// own beyond the shutdown delay, and hand on the 429 that it gets then. With HTTP/2, this becomes a GOAWAY.
func (s *Server) sendElsewhere(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if s.stopping.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, req)
	})
}

// Ready returns an error unless the server serves and its caches are filled. It is a healthz.Checker of
// controller-runtime.
func (s *Server) Ready(req *http.Request) error {
	if !s.started.Load() {
		return errors.New("the resolve API is not serving yet")
	}
	if s.stopping.Load() {
		return errors.New("the resolve API is shutting down")
	}
	return errors.Join(s.synced(req), s.clientCAs.check(req))
}

func (s *Server) synced(*http.Request) error {
	if !s.view.HasSynced() {
		return errors.New("the sessions have not been read yet")
	}
	return nil
}
