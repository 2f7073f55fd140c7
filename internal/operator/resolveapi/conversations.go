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
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	resolvev1alpha1 "github.com/catena-dev/catena/api/resolve/v1alpha1"
	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/history"
	"github.com/catena-dev/catena/internal/operator/resolve"
	"github.com/catena-dev/catena/internal/operator/sessions"
	"github.com/catena-dev/catena/internal/sortedlist"
	"github.com/catena-dev/catena/store/driver"
)

// maxListWait is how long a request waits until the view reflects its resource version. The view is usually some milliseconds old.
const maxListWait = 250 * time.Millisecond

// conversationTurns is the REST resource conversationturns: the turns of conversations in the view, without reading any object, and those of
// their histories. It can only be read by name, so that neither garbage collection nor the deletion of a namespace ever lists it.
type conversationTurns struct {
	conversationTable
	view  *sessions.View
	share ShareFunc
	// resolve returns the histories of conversations, of at most maxDepth turns.
	resolve  ResolveFunc
	maxDepth int
}

var (
	_ rest.Storage              = &conversationTurns{}
	_ rest.Scoper               = &conversationTurns{}
	_ rest.SingularNameProvider = &conversationTurns{}
	_ rest.GetterWithOptions    = &conversationTurns{}
	_ rest.TableConvertor       = &conversationTurns{}
)

// New returns empty ConversationTurns.
func (*conversationTurns) New() runtime.Object { return &resolvev1alpha1.ConversationTurns{} }

// Destroy does nothing: there is nothing to clean up.
func (*conversationTurns) Destroy() {}

// NamespaceScoped returns true.
func (*conversationTurns) NamespaceScoped() bool { return true }

// GetSingularName returns the name of the resource.
func (*conversationTurns) GetSingularName() string { return resolvev1alpha1.ConversationsResource }

// NewGetOptions returns empty options.
func (*conversationTurns) NewGetOptions() (runtime.Object, bool, string) {
	return &resolvev1alpha1.ConversationTurnsOptions{}, false, ""
}

// Get returns a page of the turns of a conversation, which has none if the view does not have it, or of its history.
func (s *conversationTurns) Get(ctx context.Context, name string, options runtime.Object) (runtime.Object, error) {
	o, ok := options.(*resolvev1alpha1.ConversationTurnsOptions)
	if !ok {
		return nil, apierrors.NewInternalError(fmt.Errorf("unexpected options %T", options))
	}
	namespace := request.NamespaceValue(ctx)
	if err := take(ctx, s.share, resolvev1alpha1.ConversationsResource, name, resolve.Share{Cost: pageCost}, func() {}); err != nil {
		return nil, err
	}
	if o.History {
		return s.history(ctx, name, o)
	}
	if err := awaitView(ctx, s.view, "sessions", o.ResourceVersion); err != nil {
		return nil, err
	}
	list := s.find(namespace, name)
	q, err := query(list, o)
	if err != nil {
		return nil, err
	}
	// Most pages have much less than the limit, and are charged for no more.
	found := s.view.List(namespace, list.Name, q, q.Limit+1)
	q.Limit = min(q.Limit, fitting(found, turnTexts))
	found, list.Next = sortedlist.Cut(q, found, (*sessions.Record).Position)
	return list, s.fill(ctx, name, list, found)
}

// fill adds turns to a list within the shares of the namespace.
func (s *conversationTurns) fill(ctx context.Context, name string, list *resolvev1alpha1.ConversationTurns, turns []*sessions.Record) error {
	return take(ctx, s.share, resolvev1alpha1.ConversationsResource, name, resolve.Share{Bytes: pageBytes(turns)}, func() {
		for _, r := range turns {
			list.Turns = append(list.Turns, newConversationTurn(r))
		}
	})
}

// history returns a page of the turns of a conversation's history, or a Status.
func (s *conversationTurns) history(ctx context.Context, name string, o *resolvev1alpha1.ConversationTurnsOptions) (runtime.Object, error) {
	options, minVersion, err := listOptions(o)
	if err != nil {
		return nil, err
	}
	resolveCtx, cancel := beforeDeadline(ctx)
	defer cancel()
	result, err := s.resolve(resolveCtx, request.NamespaceValue(ctx), name, minVersion, resolve.Query{
		NoItems: true, WalkOptions: chain.WalkOptions{MaxDepth: s.maxDepth, IncludeIncomplete: true, IncludeUnreadable: true},
	})
	if err != nil {
		status, _ := toStatus(ctx, resolvev1alpha1.ConversationsResource, name, err)
		return nil, status
	}
	defer result.Release()
	list := newConversationTurns(request.NamespaceValue(ctx), result.Conversation.Name, result.Conversation.ID)
	list.Count = int32(len(result.Path))
	if len(result.Path) > 0 {
		list.HeadResponseID = result.Path[len(result.Path)-1].Turn.ID
	}
	idOf := func(r *sessions.Record) string { return r.Turn.ID }
	page, next, err := history.PageTurns(result.Path, options, idOf)
	if err != nil {
		return nil, invalidCursor(err)
	}
	if n := fitting(page, turnTexts); n < len(page) {
		options.Limit = n
		page, next, _ = history.PageTurns(result.Path, options, idOf)
	}
	list.Next = next
	return list, s.fill(ctx, name, list, page)
}

// pageCost is what it costs to handle a request, to wait for the view, and to find a page, in bytes of a cached history that would take
// as long.
const pageCost = 16 << 10

// take calls compute within the shares of the namespace, and uses them until the request for a resource has been handled. It returns a Status.
func take(ctx context.Context, use ShareFunc, resource, name string, share resolve.Share, compute func()) error {
	release, err := use(ctx, request.NamespaceValue(ctx), share, compute)
	if err != nil {
		status, _ := toStatus(ctx, resource, name, err)
		return status
	}
	whenHandled(ctx, release)
	return nil
}

// pageBytes returns the memory that a page takes. An ID may take more than a usual row.
func pageBytes(page []*sessions.Record) (bytes int64) {
	for _, r := range page {
		bytes += rowBytes + int64(jsonBytes(turnTexts(r)))
	}
	return bytes
}

// turnTexts returns the texts of a turn in a list that can be long.
func turnTexts(r *sessions.Record) []string { return []string{r.Turn.ID, r.Turn.Previous} }

// fitting returns how many of the first entries fit on a page with their texts: at least one, if there are any.
func fitting[T any](entries []T, texts func(T) []string) int {
	bytes := 0
	for i, entry := range entries {
		if bytes >= maxPageText {
			return i
		}
		bytes += jsonBytes(texts(entry))
	}
	return len(entries)
}

// find returns the conversation with a name, without turns. A name with a dot is an object name or, if no conversation has that, an ID.
// So programs that use the object names of IDs with a dot never get another conversation.
func (s *conversationTurns) find(namespace, name string) *resolvev1alpha1.ConversationTurns {
	list := newConversationTurns(namespace, v1alpha1.ObjectName(name), name)
	if !strings.Contains(name, ".") {
		return list
	}
	known := s.view.Conversation(namespace, name)
	if known == nil {
		if known = s.view.Conversation(namespace, list.Name); known != nil {
			return list
		}
		id, _ := v1alpha1.ResponseID(name)
		known = &sessions.Conversation{ID: id, Name: name}
	}
	list.Name, list.ConversationID = known.Name, known.ID
	return list
}

// newConversationTurns returns an empty list.
func newConversationTurns(namespace, name, id string) *resolvev1alpha1.ConversationTurns {
	return &resolvev1alpha1.ConversationTurns{
		TypeMeta:   metav1.TypeMeta{APIVersion: resolvev1alpha1.GroupVersion.String(), Kind: "ConversationTurns"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, ConversationID: id,
		Turns: []resolvev1alpha1.ConversationTurn{},
	}
}

// listOptions returns the options of a request with the default limit, and its resource version.
func listOptions(o *resolvev1alpha1.ConversationTurnsOptions) (options driver.ListOptions, minVersion uint64, err error) {
	if options, err = o.ListOptions(); err != nil {
		return options, 0, apierrors.NewInternalError(err)
	}
	options.Limit = cmp.Or(options.Limit, resolvev1alpha1.DefaultListLimit)
	if minVersion, err = resolvev1alpha1.ParseResourceVersion(options.Version); err != nil {
		err = apierrors.NewBadRequest(invalidParameter(err).Error())
	}
	return options, minVersion, err
}

func invalidCursor(err error) error {
	return apierrors.NewBadRequest(`query parameter "after" is invalid: ` + err.Error())
}

// query returns the query of a request, or a Status if its cursor does not belong to the conversation.
func query(list *resolvev1alpha1.ConversationTurns, o *resolvev1alpha1.ConversationTurnsOptions) (sortedlist.Query, error) {
	options, _, err := listOptions(o)
	if err != nil {
		return sortedlist.Query{}, err
	}
	q, err := sortedlist.New(list.Namespace, list.Name, options)
	if err != nil {
		return q, invalidCursor(err)
	}
	return q, nil
}

func newConversationTurn(r *sessions.Record) resolvev1alpha1.ConversationTurn {
	return resolvev1alpha1.ConversationTurn{
		ResponseID: r.Turn.ID, PreviousResponseID: r.Turn.Previous, ResponseStatus: r.Turn.Status,
		CreatedAt: listedTime(r.Listing.CreatedAt), CompletedAt: listedTime(r.Listing.CompletedAt),
		UID: string(r.UID.Text()), Generation: r.Generation, ResourceVersion: r.Version(),
	}
}

// listedTime returns the zero time for sortedlist.Unknown.
func listedTime(seconds int64) metav1.Time { return metav1.Time{Time: time.Unix(seconds, 0).UTC()} }

// watched is a view that a watch keeps current.
type watched interface {
	HasSynced() bool
	IsStale() bool
	Reflects(namespace string, resourceVersion uint64) bool
	WaitUntilReflects(ctx context.Context, namespace string, resourceVersion uint64) error
}

// awaitView waits up to maxListWait until the view reflects a resource version, and then returns the error of checkView.
func awaitView(ctx context.Context, view watched, objects, resourceVersion string) error {
	newest, err := resolvev1alpha1.ParseResourceVersion(resourceVersion)
	if err == nil && view.HasSynced() && !view.IsStale() {
		waitCtx, cancel := context.WithTimeout(ctx, maxListWait)
		defer cancel()
		_ = view.WaitUntilReflects(waitCtx, request.NamespaceValue(ctx), newest) // checkView checks it again
	}
	return checkView(ctx, view, objects, resourceVersion)
}

// checkView returns a retryable error unless the view of these objects is current and at least as new as a resource version.
func checkView(ctx context.Context, view watched, objects, resourceVersion string) error {
	newest, err := resolvev1alpha1.ParseResourceVersion(resourceVersion)
	switch {
	case err != nil:
		return apierrors.NewBadRequest(invalidParameter(err).Error())
	case !view.HasSynced():
		return newUnavailable("the operator has not read the " + objects + " yet")
	case view.IsStale():
		return newUnavailable("the operator has received no events of the " + objects + " for too long")
	case !view.Reflects(request.NamespaceValue(ctx), newest):
		return newUnavailable("the operator has not seen resource version " + resourceVersion + " yet")
	}
	return nil
}
