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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	resolvev1alpha1 "github.com/catena-dev/catena/api/resolve/v1alpha1"
	"github.com/catena-dev/catena/internal/conversationlist"
	"github.com/catena-dev/catena/internal/operator/conversations"
	"github.com/catena-dev/catena/internal/operator/resolve"
	"github.com/catena-dev/catena/store/driver"
)

// conversationLists is the REST resource conversationlists: the conversations in the view, without reading any object. It can only be read
// by name, so that neither garbage collection nor the deletion of a namespace ever lists it.
type conversationLists struct {
	conversationListTable
	view  *conversations.View
	share ShareFunc
}

var (
	_ rest.Storage              = &conversationLists{}
	_ rest.Scoper               = &conversationLists{}
	_ rest.SingularNameProvider = &conversationLists{}
	_ rest.GetterWithOptions    = &conversationLists{}
	_ rest.TableConvertor       = &conversationLists{}
)

// New returns empty ConversationLists.
func (*conversationLists) New() runtime.Object { return &resolvev1alpha1.ConversationLists{} }

// Destroy does nothing: there is nothing to clean up.
func (*conversationLists) Destroy() {}

// NamespaceScoped returns true.
func (*conversationLists) NamespaceScoped() bool { return true }

// GetSingularName returns the name of the resource.
func (*conversationLists) GetSingularName() string { return resolvev1alpha1.ConversationListsResource }

// NewGetOptions returns empty options.
func (*conversationLists) NewGetOptions() (runtime.Object, bool, string) {
	return &resolvev1alpha1.ConversationListsOptions{}, false, ""
}

const (
	// descendantCost is what it costs to visit a descendant and to sort it, in bytes of a cached history that would take as long.
	descendantCost = 512
	// searchStep is how many descendants are visited before other namespaces get the processor. They take some milliseconds.
	searchStep = 500
)

func (s *conversationLists) take(ctx context.Context, name string, share resolve.Share, compute func()) error {
	return take(ctx, s.share, resolvev1alpha1.ConversationListsResource, name, share, compute)
}

// Get returns a page of the conversations of a namespace.
func (s *conversationLists) Get(ctx context.Context, name string, options runtime.Object) (runtime.Object, error) {
	o, ok := options.(*resolvev1alpha1.ConversationListsOptions)
	if !ok {
		return nil, apierrors.NewInternalError(fmt.Errorf("unexpected options %T", options))
	}
	if name != resolvev1alpha1.AllConversations {
		return nil, apierrors.NewNotFound(resolvev1alpha1.GroupVersion.WithResource(resolvev1alpha1.ConversationListsResource).GroupResource(), name)
	}
	namespace := request.NamespaceValue(ctx)
	q, err := conversationQuery(namespace, o)
	if err != nil {
		return nil, err
	}
	if err := s.take(ctx, name, resolve.Share{Cost: pageCost}, func() {}); err != nil {
		return nil, err
	}
	if err := awaitView(ctx, s.view, "Conversations", o.ResourceVersion); err != nil {
		return nil, err
	}
	page, err := s.page(ctx, name, namespace, q)
	if err != nil {
		return nil, err
	}
	page = page.Cut(q, fitting(page.Records, listedTexts))
	list := &resolvev1alpha1.ConversationLists{
		TypeMeta:   metav1.TypeMeta{APIVersion: resolvev1alpha1.GroupVersion.String(), Kind: "ConversationLists"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Next:       page.Next, Conversations: make([]resolvev1alpha1.ListedConversation, 0, len(page.Records)),
	}
	err = s.take(ctx, name, resolve.Share{Bytes: conversationBytes(page.Records)}, func() {
		for _, r := range page.Records {
			list.Conversations = append(list.Conversations, newListedConversation(r))
		}
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// page returns the page that a query selects. A search is counted as it proceeds, even if it finds too many.
func (s *conversationLists) page(ctx context.Context, name, namespace string, q conversationlist.Query) (page conversations.Page, err error) {
	if !q.Selection.Descendants {
		err = s.step(ctx, name, 0, func() { page = s.view.List(namespace, q) })
		return page, err
	}
	search := s.view.Search(namespace, q)
	counted := 0
	for more := true; more; {
		visited := len(search.Found())
		var tooMany error
		if err := s.step(ctx, name, visited-counted, func() { more, tooMany = search.Step(searchStep) }); err != nil {
			return page, err
		}
		counted = visited
		if tooMany != nil {
			if err := s.step(ctx, name, len(search.Found())-counted, func() {}); err != nil {
				return page, err
			}
			return page, conversationStatus(name, tooMany)
		}
	}
	err = s.step(ctx, name, len(search.Found())-counted, func() { page = search.Page() })
	return page, err
}

// step does a further part of a request, and counts the descendants that were visited before.
func (s *conversationLists) step(ctx context.Context, name string, visited int, compute func()) error {
	share := resolve.Share{Cost: descendantCost * int64(visited), Continued: true}
	release, err := s.share(ctx, request.NamespaceValue(ctx), share, compute)
	if err != nil {
		status, _ := toStatus(ctx, resolvev1alpha1.ConversationListsResource, name, err)
		return status
	}
	release()
	return nil
}

// conversationQuery returns the query of a request, or a Status if its cursor does not belong to it.
func conversationQuery(namespace string, o *resolvev1alpha1.ConversationListsOptions) (conversationlist.Query, error) {
	options, err := o.ListOptions()
	if err != nil {
		return conversationlist.Query{}, apierrors.NewInternalError(err)
	}
	q, err := conversationlist.New(namespace, options.WithDefaults())
	if err != nil {
		return q, apierrors.NewBadRequest(`query parameter "after" is invalid: ` + err.Error())
	}
	return q, nil
}

// conversationBytes returns the memory that a page takes. A text may take more than a usual row.
func conversationBytes(page []*conversations.Record) (bytes int64) {
	for _, r := range page {
		bytes += rowBytes + int64(jsonBytes(listedTexts(r)))
	}
	return bytes
}

// listedTexts returns the texts of a conversation that can be long.
func listedTexts(r *conversations.Record) []string {
	return []string{r.ID, r.User, r.Title, r.Parent, r.Head}
}

func newListedConversation(r *conversations.Record) resolvev1alpha1.ListedConversation {
	at := func(sort string) metav1.Time { return metav1.Time{Time: r.Time(sort).Time().UTC()} }
	return resolvev1alpha1.ListedConversation{
		ConversationID: r.ID, UserID: r.User, Title: r.Title, State: r.State, ParentConversationID: r.Parent, HeadResponseID: r.Head,
		CreatedAt: at(driver.SortCreated), UpdatedAt: at(driver.SortUpdated), LastActivityAt: at(driver.SortActivity),
	}
}

// conversationStatus returns the Status for an error of a conversation.
func conversationStatus(name string, err error) error {
	e, ok := errors.AsType[*driver.Error](err)
	if !ok {
		return apierrors.NewInternalError(err)
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid, Message: e.Message,
		Details: &metav1.StatusDetails{
			Name: name, Group: resolvev1alpha1.GroupVersion.Group, Kind: resolvev1alpha1.ConversationListsResource,
			Causes: []metav1.StatusCause{{Type: metav1.CauseType(e.Code), Message: e.Message}},
		},
	}}
}
