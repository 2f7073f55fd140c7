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
	"encoding/base64"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fieldselectors "k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	resolvev1alpha1 "github.com/catena-dev/catena/api/resolve/v1alpha1"
	"github.com/catena-dev/catena/internal/operator/resolve"
	"github.com/catena-dev/catena/internal/operator/sessions"
)

// verdicts is the REST resource sessionverdicts: the verdicts of the view, without reading any object. It can be listed but,
// like inputitems, not deleted, so that neither garbage collection nor the deletion of a namespace ever requests it.
type verdicts struct {
	verdictTable
	view  *sessions.View
	share ShareFunc
	max   int // number of verdicts in one response
}

var (
	_ rest.Storage              = &verdicts{}
	_ rest.Scoper               = &verdicts{}
	_ rest.SingularNameProvider = &verdicts{}
	_ rest.Getter               = &verdicts{}
	_ rest.Lister               = &verdicts{}
)

// New returns an empty SessionVerdict.
func (*verdicts) New() runtime.Object { return &resolvev1alpha1.SessionVerdict{} }

// NewList returns an empty SessionVerdictList.
func (*verdicts) NewList() runtime.Object { return &resolvev1alpha1.SessionVerdictList{} }

// Destroy does nothing: there is nothing to clean up.
func (*verdicts) Destroy() {}

// NamespaceScoped returns true.
func (*verdicts) NamespaceScoped() bool { return true }

// GetSingularName returns the name of one verdict.
func (*verdicts) GetSingularName() string { return "sessionverdict" }

// Get returns the verdict on the session with an object name.
func (s *verdicts) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	if err := checkView(ctx, s.view, "sessions", options.ResourceVersion); err != nil {
		return nil, err
	}
	verdict, found := s.view.Verdict(request.NamespaceValue(ctx), name)
	if !found {
		resource := resolvev1alpha1.GroupVersion.WithResource(resolvev1alpha1.VerdictsResource).GroupResource()
		return nil, apierrors.NewNotFound(resource, name)
	}
	return newVerdict(verdict), nil
}

// List returns the verdicts on the sessions of one or all namespaces, sorted by namespace and name. It supports the field
// selectors metadata.name and metadata.namespace, but no label selectors, because the view has no labels.
func (s *verdicts) List(ctx context.Context, options *internalversion.ListOptions) (runtime.Object, error) {
	if err := checkView(ctx, s.view, "sessions", options.ResourceVersion); err != nil {
		return nil, err
	}
	if options.LabelSelector != nil && !options.LabelSelector.Empty() {
		return nil, apierrors.NewBadRequest("label selectors are not supported: list ResponseSessions with the label selector instead")
	}
	namespace := request.NamespaceValue(ctx)
	after, err := parseContinue(namespace, options.Continue)
	if err != nil {
		return nil, err
	}
	limit := s.max
	if options.Limit > 0 {
		limit = int(min(options.Limit, int64(s.max)))
	}
	list, tooLong := &resolvev1alpha1.SessionVerdictList{Items: []resolvev1alpha1.SessionVerdict{}}, false
	share := resolve.Share{
		Bytes: int64(min(limit, s.view.Sessions(namespace))) * rowBytes, Cost: int64(s.view.Usage(namespace).Sessions) * visitCost,
	}
	release, err := s.share(ctx, namespace, share, func() {
		keys := s.view.Keys(namespace, after, limit+1)
		if len(keys) > limit {
			if tooLong = options.Limit == 0; tooLong {
				return
			}
			keys = keys[:limit]
			list.Continue = newContinue(keys[limit-1])
		}
		for _, key := range keys {
			if verdict, found := s.view.Verdict(key.Namespace, key.Name); found && matches(options.FieldSelector, key) {
				list.Items = append(list.Items, *newVerdict(verdict))
			}
		}
	})
	if err != nil {
		status, _ := toStatus(ctx, resolvev1alpha1.VerdictsResource, "", err)
		return nil, status
	}
	whenHandled(ctx, release)
	if tooLong {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the list has more than %d verdicts: request pages with `limit`", limit))
	}
	return list, nil
}

// visitCost is what it costs to find the first sessions of a namespace in their order, for each of its sessions, in bytes of a cached
// history that would take as long. A list of all namespaces, which few users may read, visits as few of them as it can.
const visitCost = 64

// newVerdict returns a verdict as it is in the status of its session; see newStatus in package controllers.
func newVerdict(v sessions.Verdict) *resolvev1alpha1.SessionVerdict {
	r := v.Record
	return &resolvev1alpha1.SessionVerdict{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.Namespace, Name: r.Name, UID: r.UID.Text(), CreationTimestamp: r.Created.Time(),
		},
		ResponseID:         r.Turn.ID,
		PreviousResponseID: r.Turn.Previous,
		ResponseStatus:     r.Turn.Status,
		ChainValid:         metav1.ConditionStatus(v.Rule.ConditionStatus()),
		Reason:             v.Rule.Reason(),
		Depth:              int32(v.Depth),
		RootResponseID:     v.Root,
		BrokenAt:           v.BrokenAt,
	}
}

// matches reports whether a field selector, which may be nil, selects a session.
func matches(selector fieldselectors.Selector, key types.NamespacedName) bool {
	return selector == nil || selector.Matches(fieldselectors.Set{"metadata.namespace": key.Namespace, "metadata.name": key.Name})
}

// newContinue returns the token with which a list continues after a session.
func newContinue(last types.NamespacedName) string {
	return base64.RawURLEncoding.EncodeToString([]byte(last.String()))
}

// parseContinue returns the session after which a list of one or all namespaces continues. An empty token is the beginning.
func parseContinue(namespace, token string) (types.NamespacedName, error) {
	if token == "" {
		return types.NamespacedName{}, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(token)
	in, name, found := strings.Cut(string(raw), string(types.Separator))
	if err != nil || !found || namespace != "" && in != namespace {
		return types.NamespacedName{}, apierrors.NewBadRequest(`query parameter "continue" is invalid: it is not a token of this list`)
	}
	return types.NamespacedName{Namespace: in, Name: name}, nil
}
