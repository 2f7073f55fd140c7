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
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	prometheustest "github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"

	resolvev1alpha1 "github.com/catena-dev/catena/api/resolve/v1alpha1"
	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/operator/resolve"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/store/driver"
)

func TestWalkOptions(t *testing.T) {
	s := &storage{defaultMaxDepth: 64, maxDepthLimit: 100}
	for name, tc := range map[string]struct {
		options driver.ResolveOptions
		want    chain.WalkOptions
		wantErr string
	}{
		"default":              {want: chain.WalkOptions{MaxDepth: 64}},
		"the operator's limit": {options: driver.ResolveOptions{MaxDepth: new(100)}, want: chain.WalkOptions{MaxDepth: 100}},
		"everything":           {options: driver.ResolveOptions{MaxDepth: new(0), IncludeIncomplete: true}, want: chain.WalkOptions{IncludeIncomplete: true}},
		"more turns":           {options: driver.ResolveOptions{Last: 70}, want: chain.WalkOptions{MaxDepth: 70, Last: 70}},
		"few turns":            {options: driver.ResolveOptions{Last: 3}, want: chain.WalkOptions{MaxDepth: 64, Last: 3}},
		"more than the limit":  {options: driver.ResolveOptions{Last: 101}, want: chain.WalkOptions{MaxDepth: 100, Last: 101}},
		"few turns, shallow":   {options: driver.ResolveOptions{Last: 3, MaxDepth: new(2)}, want: chain.WalkOptions{MaxDepth: 2, Last: 3}},
		"as deep as possible":  {options: driver.ResolveOptions{MaxDepth: new(driver.MaxDepthLimit)}, want: chain.WalkOptions{MaxDepth: 100}},
		"too deep":             {options: driver.ResolveOptions{MaxDepth: new(101)}, wantErr: `query parameter "maxDepth" is "101": must be a whole number from 0 to 100, the operator's limit`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := s.walkOptions(tc.options)
			if want := badRequest(tc.wantErr); tc.wantErr != "" {
				if err != want { //nolint:errorlint // it is not wrapped
					t.Errorf("got %v, want %v", err, want)
				}
				return
			}
			if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// TestGetResourceVersion: the resolver gets the resource version of the options as a number.
func TestGetResourceVersion(t *testing.T) {
	var got uint64
	s := &storage{resolve: func(_ context.Context, _, _ string, minVersion uint64, _ resolve.Query) (*resolve.Result, error) {
		got = minVersion
		return nil, resolve.ErrBusy
	}}
	for version, want := range map[string]uint64{"": 0, "7": 7} {
		_, err := s.get(t.Context(), "resp_1", &resolvev1alpha1.InputItemsOptions{ResourceVersion: version})
		if !errors.Is(err, resolve.ErrBusy) || got != want {
			t.Errorf("resource version %q: got %d and %v, want %d", version, got, err, want)
		}
	}
	_, err := s.get(t.Context(), "resp_1", &resolvev1alpha1.InputItemsOptions{ResourceVersion: "x"})
	want := badRequest(`query parameter "resourceVersion" is "x": must be a resource version, which is a whole number`)
	if err != want { //nolint:errorlint // it is not wrapped
		t.Errorf("got %v, want %v", err, want)
	}
}

// TestVerdictsAreBounded: a list of more verdicts than one answer has is refused, unless it is read in pages.
func TestVerdictsAreBounded(t *testing.T) {
	kube := newKubeAPIServer(t)
	turns := newView(t, kube, time.Hour)
	resources := map[string]*verdicts{
		"resp": newSessionVerdicts(turns, shareAll),
		"conv": newConversationVerdicts(newNamedView(t, kube, time.Hour), turns, shareAll),
	}
	for name, tc := range map[string]struct {
		resource, namespace string
		limit               int64
		want                []string
		wantNext            bool
	}{
		"all of a small namespace":    {resource: "resp", namespace: "team-b", want: []string{"resp.1"}},
		"all of a large namespace":    {resource: "resp", namespace: "team-a"},
		"a page of a large namespace": {resource: "resp", namespace: "team-a", limit: 1, want: []string{"resp.1"}, wantNext: true},
		"a large page": {
			resource: "resp", namespace: "team-a", limit: 500, want: []string{"resp.1", "resp.2"}, wantNext: true,
		},
		"a namespace that has no turns":      {resource: "resp", namespace: "team-c", want: []string{}},
		"conversations of a small namespace": {resource: "conv", namespace: "team-b", want: []string{"conv.9"}},
		"conversations of a large namespace": {resource: "conv", namespace: "team-a"},
		"a page of conversations":            {resource: "conv", namespace: "team-a", limit: 1, want: []string{"conv.1"}, wantNext: true},
		"a large page of conversations": {
			resource: "conv", namespace: "team-a", limit: 500, want: []string{"conv.1", "conv.2"}, wantNext: true,
		},
		"a namespace that has no conversations": {resource: "conv", namespace: "team-c", want: []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			s := resources[tc.resource]
			s.max = 2
			list, err := s.List(request.WithNamespace(inHandler(t.Context()), tc.namespace), &internalversion.ListOptions{Limit: tc.limit})
			if tc.want == nil {
				if !apierrors.IsRequestEntityTooLargeError(err) {
					t.Errorf("want RequestEntityTooLarge, got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatalf("Unexpected error: %v", err)
			}
			got := []string{}
			err = meta.EachListItem(list, func(verdict runtime.Object) error {
				got = append(got, verdict.(metav1.Object).GetName())
				return nil
			})
			if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
				t.Errorf("Unexpected names and %v (-want +got):\n%s", err, diff)
			}
			if next := list.(metav1.ListInterface).GetContinue(); (next != "") != tc.wantNext {
				t.Errorf("Unexpected token: want one: %t, got %q", tc.wantNext, next)
			}
		})
	}
}

// TestVerdictsAreCounted: the lists of verdicts that a namespace has not read yet count towards its share, and leave room for those
// of others.
func TestVerdictsAreCounted(t *testing.T) {
	for _, resource := range []string{resolvev1alpha1.VerdictsResource, resolvev1alpha1.ConversationVerdictsResource} {
		t.Run(resource, func(t *testing.T) {
			kube, options := newKubeAPIServer(t), resolve.DefaultOptions()
			options.InFlightBytes, options.InFlightRequests = 15*rowBytes, 10_000
			view := newView(t, kube, time.Hour)
			share := resolve.New(view, nil, nil, options).Share
			s := newSessionVerdicts(view, share)
			if resource != s.resource {
				s = newConversationVerdicts(newNamedView(t, kube, time.Hour), view, share)
			}
			list := func(ctx context.Context, namespace string) error {
				_, err := s.List(request.WithNamespace(inHandler(ctx), namespace), &internalversion.ListOptions{})
				return err
			}
			reading, read := context.WithCancel(t.Context())
			for range 1000 {
				if err := list(reading, "team-a"); err != nil {
					break
				}
			}
			if err := list(reading, "team-a"); !apierrors.IsTooManyRequests(err) {
				t.Errorf("want TooManyRequests, got %v", err)
			}
			if err := list(t.Context(), "team-b"); err != nil {
				t.Errorf("another namespace: %v", err)
			}
			read()
			testutil.Eventually(t, func(context.Context) error {
				all, read := context.WithCancel(t.Context())
				defer read()
				return list(all, "team-a")
			})
			testutil.Eventually(t, func(context.Context) error { return list(t.Context(), "") })
			if err := list(t.Context(), ""); !apierrors.IsTooManyRequests(err) {
				t.Errorf("all namespaces: want TooManyRequests, got %v", err)
			}
		})
	}
}

// TestMetrics: requests are counted by their result.
func TestMetrics(t *testing.T) {
	ts := startServer(t, resolveStub(t))
	for name, code := range map[string]string{"resp_2": "ok", "resp_9": "session.chain.not_found", "resp_2?limit=1&after=x": "BadRequest"} {
		before := prometheustest.ToFloat64(requestsTotal.WithLabelValues(code))
		ts.get(t, inputItems+name, "alice", "")
		if counted := prometheustest.ToFloat64(requestsTotal.WithLabelValues(code)) - before; counted != 1 {
			t.Errorf("%s: code %q was counted %v times, want once", name, code, counted)
		}
	}
}

// longTexts has verdicts whose texts take half of a list each, and more than a page.
type longTexts struct{ verdictSource }

func (longTexts) texts(runtime.Object) []string {
	return []string{strings.Repeat("x", maxListText/4), strings.Repeat("\"", maxListText/8)} // which JSON escapes
}

// TestVerdictsWithLongTexts: a page ends when its texts are long enough, and the next one continues there.
func TestVerdictsWithLongTexts(t *testing.T) {
	s := newSessionVerdicts(newView(t, newKubeAPIServer(t), time.Hour), shareAll)
	s.verdictSource = longTexts{s.verdictSource}
	ctx := request.WithNamespace(inHandler(t.Context()), "team-a")
	if _, err := s.List(ctx, &internalversion.ListOptions{}); !apierrors.IsRequestEntityTooLargeError(err) {
		t.Errorf("want RequestEntityTooLarge, got %v", err)
	}
	var pages []string
	for next := ""; next != "" || len(pages) == 0; {
		list, err := s.List(ctx, &internalversion.ListOptions{Limit: 500, Continue: next})
		if err != nil {
			t.Fatal(err)
		}
		names := ""
		if err := meta.EachListItem(list, func(verdict runtime.Object) error {
			names += verdict.(metav1.Object).GetName()
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		pages, next = append(pages, names), list.(metav1.ListInterface).GetContinue()
	}
	if diff := cmp.Diff([]string{"resp.1", "resp.2", "resp.9"}, pages); diff != "" {
		t.Errorf("pages (-want +got):\n%s", diff)
	}
}
