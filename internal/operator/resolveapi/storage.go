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
	"fmt"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	resolvev1alpha1 "github.com/catena-dev/catena/api/resolve/v1alpha1"
	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/operator/resolve"
	"github.com/catena-dev/catena/internal/requestid"
	"github.com/catena-dev/catena/store/driver"
)

// ResolveFunc returns the history of a turn or of a conversation, named by its ID or by the name of its object, at least as new as the
// resource version minVersion. It returns a *chain.Error if the chain cannot be resolved, resolve.ErrNoConversation if the conversation does not
// exist, and otherwise errors of live reads or of the context. The history must not be changed.
type ResolveFunc func(ctx context.Context, namespace, name string, minVersion uint64, query resolve.Query) (*resolve.Result, error)

// ShareFunc calls compute within the shares of a namespace, and counts the request towards them until release is called. It returns an
// error instead if that exceeds a share.
type ShareFunc func(ctx context.Context, namespace string, share resolve.Share, compute func()) (release func(), err error)

// storage is the REST resource inputitems or conversationitems. It can only be read by name, so that neither garbage collection nor the
// deletion of a namespace ever lists it.
type storage struct {
	tableConvertor
	resource        string
	empty           object
	resolve         ResolveFunc
	defaultMaxDepth int32
	maxDepthLimit   int32
}

var (
	_ rest.Storage              = &storage{}
	_ rest.Scoper               = &storage{}
	_ rest.SingularNameProvider = &storage{}
	_ rest.GetterWithOptions    = &storage{}
	_ rest.TableConvertor       = &storage{}
)

// New returns an empty object.
func (s *storage) New() runtime.Object { return s.empty.DeepCopyObject() }

// Destroy does nothing: there is nothing to clean up.
func (*storage) Destroy() {}

// NamespaceScoped returns true.
func (*storage) NamespaceScoped() bool { return true }

// GetSingularName returns the name of the resource.
func (s *storage) GetSingularName() string { return s.resource }

// NewGetOptions returns empty options.
func (*storage) NewGetOptions() (runtime.Object, bool, string) {
	return &resolvev1alpha1.InputItemsOptions{}, false, ""
}

// Get returns the history of the turn or conversation with an ID or object name, or a Status with the reason why it cannot be returned.
func (s *storage) Get(ctx context.Context, name string, options runtime.Object) (runtime.Object, error) {
	o, ok := options.(*resolvev1alpha1.InputItemsOptions)
	if !ok {
		return nil, apierrors.NewInternalError(fmt.Errorf("unexpected options %T", options))
	}
	start := time.Now()
	answer, err := s.get(ctx, name, o)
	seconds := time.Since(start).Seconds()
	durationSeconds.Observe(seconds)
	if err != nil {
		status, code := toStatus(ctx, s.resource, name, err)
		requestsTotal.WithLabelValues(code).Inc()
		logger := requestLog(ctx, s.resource, name).WithValues("code", code, "seconds", seconds)
		if status.ErrStatus.Code >= 500 && code != driver.ResultCanceled {
			logger.Error(err, "Unable to resolve a response")
		} else {
			logger.V(1).Info("Did not resolve a response")
		}
		return nil, status
	}
	code, items := resultNotModified, 0
	if answer.Page != nil {
		code, items = driver.ResultOK, answer.Len()
	}
	requestsTotal.WithLabelValues(code).Inc()
	itemsTotal.Add(float64(items))
	if logger := log.FromContext(ctx).V(1); logger.Enabled() {
		requestLog(ctx, s.resource, name).V(1).Info("Resolved a response", "code", code, "items", items, "seconds", seconds)
	}
	return answer, nil
}

// requestLog returns a logger for a request for an object of a resource. Its requestID is that of the client, who can choose any, and its
// auditID that of the kube-apiserver's audit log, if the request came through it.
func requestLog(ctx context.Context, resource, name string) logr.Logger {
	return log.FromContext(ctx).WithValues("namespace", request.NamespaceValue(ctx), "name", name,
		"requestID", requestid.FromContext(ctx), "auditID", audit.GetAuditIDTruncated(ctx), "resource", resource)
}

func (s *storage) get(ctx context.Context, name string, o *resolvev1alpha1.InputItemsOptions) (*answer, error) {
	options, err := o.ResolveOptions()
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	minVersion, err := o.MinResourceVersion()
	if err != nil {
		return nil, invalidParameter(err)
	}
	walk, err := s.walkOptions(options)
	if err != nil {
		return nil, err
	}
	namespace := request.NamespaceValue(ctx)
	resolveCtx, cancel := beforeDeadline(ctx)
	defer cancel()
	query := resolve.Query{WalkOptions: walk, Digests: options.Digests}
	conditional := conditionalOf(ctx)
	if conditional != nil && len(conditional.noneMatch.tags) > 0 {
		query.Unchanged = func(h *resolve.Result) bool { return conditional.noneMatch.has(etagOf(namespace, h, options)) }
	}
	history, err := s.resolve(resolveCtx, namespace, name, minVersion, query)
	if err != nil {
		return nil, err
	}
	whenHandled(ctx, history.Release)
	answer, err := newAnswer(namespace, history, options)
	if err == nil && conditional != nil && conditional.noneMatch.all {
		answer.Page = nil // not before the items have been read: it only matches if there is an answer
	}
	return answer, err
}

// walkOptions returns the options of the walk, with the operator's default. It returns a badRequest if the request exceeds
// the operator's limit. The largest value that any operator accepts stands for this limit: who sends it wants all that there is.
func (s *storage) walkOptions(options driver.ResolveOptions) (chain.WalkOptions, error) {
	limit := int(s.maxDepthLimit)
	if options.MaxDepth != nil && *options.MaxDepth > limit && *options.MaxDepth != driver.MaxDepthLimit {
		return chain.WalkOptions{}, invalidParameter(driver.NewOptionError("maxDepth", strconv.Itoa(*options.MaxDepth),
			fmt.Sprintf("a whole number from 0 to %d, the operator's limit", limit)))
	}
	return chain.WalkOptions{
		MaxDepth: min(options.Depth(int(s.defaultMaxDepth)), limit), Last: options.Last,
		ContinueIncomplete: options.ContinueIncomplete, IncludeIncomplete: options.IncludeIncomplete,
	}, nil
}

func invalidParameter(err error) error { return badRequest("query parameter " + err.Error()) }
