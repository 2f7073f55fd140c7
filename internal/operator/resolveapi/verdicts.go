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
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fieldselectors "k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	resolvev1alpha1 "github.com/catena-dev/catena/api/resolve/v1alpha1"
	"github.com/catena-dev/catena/internal/operator/resolve"
	"github.com/catena-dev/catena/internal/pagecursor"
)

// verdicts is the REST resource sessionverdicts or conversationverdicts: verdicts from the views, without reading any object. It can be
// listed but, like inputitems, not deleted, so that neither garbage collection nor the deletion of a namespace ever requests it.
type verdicts struct {
	verdictSource
	resource, singular string
	objects            string // what the verdicts are on, as in a message
	empty, emptyList   runtime.Object
	columns            []metav1.TableColumnDefinition
	share              ShareFunc
	max                int // number of verdicts in one response
}

// The maximum size of the texts in a page, and in a list of verdicts without pages, in bytes as JSON. To encode a page takes some milliseconds.
// IDs can be a hundred times as long as usual.
const (
	maxPageText = 1 << 20
	maxListText = 4 << 20
)

// verdictSource has the verdicts on the objects of one kind.
type verdictSource interface {
	// check returns a retryable error unless the views are current, and that of the objects is at least as new as a resource version.
	check(ctx context.Context, resourceVersion string) error
	// verdict returns the verdict on an object. It returns false if the object does not exist or is being deleted.
	verdict(key types.NamespacedName) (runtime.Object, bool)
	// keys returns the keys of the first objects after a key: see sessions.View.Keys.
	keys(namespace string, after types.NamespacedName, limit int) []types.NamespacedName
	// count returns the number of objects of a namespace or, if it is empty, of all namespaces.
	count(namespace string) int
	// visitCost returns what it costs to find the keys of a page, in bytes of a cached history that would take as long.
	visitCost(namespace string) int64
	// texts returns the texts of a verdict that can be long.
	texts(verdict runtime.Object) []string
	// cells returns the row of a verdict in the table.
	cells(verdict runtime.Object) []any
}

var (
	_ rest.Storage              = &verdicts{}
	_ rest.Scoper               = &verdicts{}
	_ rest.SingularNameProvider = &verdicts{}
	_ rest.Getter               = &verdicts{}
	_ rest.Lister               = &verdicts{}
)

// New returns an empty verdict.
func (s *verdicts) New() runtime.Object { return s.empty.DeepCopyObject() }

// NewList returns an empty list of verdicts.
func (s *verdicts) NewList() runtime.Object { return s.emptyList.DeepCopyObject() }

// Destroy does nothing: there is nothing to clean up.
func (*verdicts) Destroy() {}

// NamespaceScoped returns true.
func (*verdicts) NamespaceScoped() bool { return true }

// GetSingularName returns the name of one verdict.
func (s *verdicts) GetSingularName() string { return s.singular }

// Get returns the verdict on the object with a name.
func (s *verdicts) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	if err := s.check(ctx, options.ResourceVersion); err != nil {
		return nil, err
	}
	verdict, found := s.verdict(types.NamespacedName{Namespace: request.NamespaceValue(ctx), Name: name})
	if !found {
		return nil, apierrors.NewNotFound(resolvev1alpha1.GroupVersion.WithResource(s.resource).GroupResource(), name)
	}
	return verdict, nil
}

// List returns the verdicts on the objects of one or all namespaces, sorted by namespace and name. It supports the field
// selectors metadata.name and metadata.namespace, but no label selectors, because the views have no labels, and no exact resource version,
// because they have only the newest state.
func (s *verdicts) List(ctx context.Context, options *internalversion.ListOptions) (runtime.Object, error) {
	if err := s.check(ctx, options.ResourceVersion); err != nil {
		return nil, err
	}
	if options.LabelSelector != nil && !options.LabelSelector.Empty() {
		return nil, apierrors.NewBadRequest("label selectors are not supported: list " + s.objects + " with the label selector instead")
	}
	if options.ResourceVersionMatch == metav1.ResourceVersionMatchExact {
		return nil, apierrors.NewBadRequest("resourceVersionMatch=Exact is not supported: verdicts are at least as new as the resource version")
	}
	namespace := request.NamespaceValue(ctx)
	after, err := parseContinue(namespace, options.Continue)
	if err != nil {
		return nil, err
	}
	limit, maxText := s.max, maxListText
	if options.Limit > 0 {
		limit, maxText = int(min(options.Limit, int64(s.max))), maxPageText
	}
	var keys []types.NamespacedName
	more := false
	share := resolve.Share{Bytes: int64(min(limit, s.count(namespace))) * rowBytes, Cost: s.visitCost(namespace)}
	release, err := s.share(ctx, namespace, share, func() {
		keys = s.keys(namespace, after, limit+1)
		if more = len(keys) > limit; more {
			keys = keys[:limit]
		}
	})
	if err != nil {
		status, _ := toStatus(ctx, s.resource, "", err)
		return nil, status
	}
	whenHandled(ctx, release)
	if more && options.Limit == 0 {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the list has more than %d verdicts: request pages with `limit`", limit))
	}
	found, rest, err := s.verdicts(ctx, namespace, keys, options.FieldSelector, maxText)
	if err != nil {
		status, _ := toStatus(ctx, s.resource, "", err)
		return nil, status
	}
	if len(rest) > 0 && options.Limit == 0 {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the list has more than %d bytes: request pages with `limit`", maxText))
	}
	list := s.NewList()
	if err := meta.SetList(list, found); err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	if handled := keys[:len(keys)-len(rest)]; more || len(rest) > 0 {
		list.(metav1.ListInterface).SetContinue(newContinue(handled[len(handled)-1]))
	}
	return list, nil
}

// verdictStep is how many verdicts are made before other namespaces get the processor. They take some milliseconds.
const verdictStep = 250

// verdicts returns the verdicts on objects, without those that do not exist any more, or that a selector does not select, until their texts reach
// a size. It also returns the rest of the keys.
func (s *verdicts) verdicts(
	ctx context.Context, namespace string, keys []types.NamespacedName, selector fieldselectors.Selector, maxText int,
) (found []runtime.Object, rest []types.NamespacedName, err error) {
	text := 0
	for rest = keys; len(rest) > 0 && text < maxText; {
		release, err := s.share(ctx, namespace, resolve.Share{Continued: true}, func() {
			for range verdictStep {
				if len(rest) == 0 || text >= maxText {
					return
				}
				key := rest[0]
				rest = rest[1:]
				if verdict, exists := s.verdict(key); exists && matches(selector, key) {
					found = append(found, verdict)
					text += jsonBytes(s.texts(verdict))
				}
			}
		})
		if err != nil {
			return nil, nil, err
		}
		release()
	}
	return found, rest, nil
}

// jsonBytes returns the size of texts as JSON.
func jsonBytes(texts []string) (bytes int) {
	for _, text := range texts {
		bytes += len(text)
		for i := range len(text) {
			switch c := text[i]; {
			case c < ' ', c == '<', c == '>', c == '&':
				bytes += len(`\u0000`) - 1
			case c == '"', c == '\\':
				bytes++
			}
		}
	}
	return bytes
}

// matches reports whether a field selector, which may be nil, selects an object.
func matches(selector fieldselectors.Selector, key types.NamespacedName) bool {
	return selector == nil || selector.Matches(fieldselectors.Set{"metadata.namespace": key.Namespace, "metadata.name": key.Name})
}

// newContinue returns the token with which a list continues after an object.
func newContinue(last types.NamespacedName) string {
	return pagecursor.Encode([]byte(last.String()))
}

// parseContinue returns the key after which a list of one or all namespaces continues. An empty token is the beginning.
func parseContinue(namespace, token string) (types.NamespacedName, error) {
	if token == "" {
		return types.NamespacedName{}, nil
	}
	raw, err := pagecursor.Decode(token)
	in, name, found := strings.Cut(string(raw), string(types.Separator))
	if err == nil && (!found || namespace != "" && in != namespace) {
		err = pagecursor.ErrInvalid
	}
	if err != nil {
		return types.NamespacedName{}, apierrors.NewBadRequest(fmt.Sprintf(`query parameter "continue" is invalid: %v`, err))
	}
	return types.NamespacedName{Namespace: in, Name: name}, nil
}
