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

package driver_test

import (
	"errors"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/catena-dev/catena/store/driver"
)

// TestParseQuery: see api/resolve/v1alpha1 for the cases of each parameter.
func TestParseQuery(t *testing.T) {
	all := driver.ResolveOptions{
		MaxDepth: new(0), Last: 2, ContinueIncomplete: true, IncludeIncomplete: true, Origins: true, Digests: true, Instructions: "Last", Limit: 20, After: "a b&c", Order: "desc", Version: "12",
	}
	for name, tc := range map[string]struct {
		query   string
		want    driver.ResolveOptions
		wantErr string
	}{
		"empty":               {},
		"everything":          {query: "maxDepth=0&last=2&continueIncomplete=true&includeIncomplete=true&origins=true&digests=true&instructions=Last&limit=20&after=a+b%26c&order=desc&resourceVersion=12", want: all},
		"unknown":             {query: "depth=1", wantErr: `"depth" is unknown: must be one of maxDepth, last, continueIncomplete, includeIncomplete, origins, digests, instructions, limit, after, order, resourceVersion`},
		"repeated":            {query: "limit=1&limit=2", wantErr: `"limit" is given 2 times: must be given once`},
		"not allowed":         {query: "limit=0", wantErr: `"limit" is "0": must be a whole number from 1 to 1000`},
		"after without limit": {query: "after=x", wantErr: `"after" needs "limit": without it, the result is the whole history`},
		"too long":            {query: "order=" + strings.Repeat("x", 5000), wantErr: `"order" is "` + strings.Repeat("x", 100) + `": must be one of asc, desc`},
	} {
		t.Run(name, func(t *testing.T) {
			query, err := url.ParseQuery(tc.query)
			if err != nil {
				t.Fatal(err)
			}
			got, err := driver.ParseQuery(query)
			if tc.wantErr != "" {
				if _, ok := errors.AsType[*driver.OptionError](err); !ok || err.Error() != tc.wantErr {
					t.Errorf("got %v, want %s", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestOptionsAreParameters: every option with a JSON name is a query parameter, and is named in the error for an unknown parameter.
func TestOptionsAreParameters(t *testing.T) {
	_, err := driver.ParseQuery(url.Values{"unknown": {""}})
	_, list, _ := strings.Cut(err.Error(), "must be one of ")
	if diff := cmp.Diff(parametersOf(reflect.TypeFor[driver.ResolveOptions]()), strings.Split(list, ", ")); diff != "" {
		t.Errorf("(-fields +parameters):\n%s", diff)
	}
}

// TestListOptionsAreParameters is TestOptionsAreParameters for lists.
func TestListOptionsAreParameters(t *testing.T) {
	_, err := driver.ParseListQuery(url.Values{"unknown": {""}})
	_, list, _ := strings.Cut(err.Error(), "must be one of ")
	if diff := cmp.Diff(parametersOf(reflect.TypeFor[driver.ListOptions]()), strings.Split(list, ", ")); diff != "" {
		t.Errorf("(-fields +parameters):\n%s", diff)
	}
}

// TestConversationListOptionsAreParameters is TestOptionsAreParameters for lists of conversations.
func TestConversationListOptionsAreParameters(t *testing.T) {
	_, err := driver.ParseConversationListQuery(url.Values{"unknown": {""}})
	_, list, _ := strings.Cut(err.Error(), "must be one of ")
	if diff := cmp.Diff(parametersOf(reflect.TypeFor[driver.ConversationListOptions]()), strings.Split(list, ", ")); diff != "" {
		t.Errorf("(-fields +parameters):\n%s", diff)
	}
}

// parametersOf returns the JSON names of a struct of options.
func parametersOf(options reflect.Type) []string {
	var names []string
	for field := range options.Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "-" {
			names = append(names, name)
		}
	}
	return names
}

// TestListQueryRoundTrip is TestQueryRoundTrip for lists.
func TestListQueryRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		options := driver.ListOptions{
			Limit:   rapid.IntRange(-1, driver.MaxLimit+1).Draw(t, "limit"),
			After:   rapid.String().Draw(t, "after"),
			Order:   rapid.SampledFrom([]string{"", "asc", "desc", "newest"}).Draw(t, "order"),
			History: rapid.Bool().Draw(t, "history"),
			Version: rapid.String().Draw(t, "version"),
		}
		query, err := url.ParseQuery(options.Query().Encode())
		if err != nil {
			t.Fatal(err)
		}
		got, err := driver.ParseListQuery(query)
		if (err == nil) != (options.ValidateFor("c") == nil) {
			t.Fatalf("options %+v: ValidateFor returned %v, but ParseListQuery returned %v", options, options.ValidateFor("c"), err)
		}
		if diff := cmp.Diff(options, got); err == nil && diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

// TestConversationListQueryRoundTrip is TestQueryRoundTrip for lists of conversations. The IDs are checked only as options: one that is too
// long selects nothing.
func TestConversationListQueryRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		options := driver.ConversationListOptions{
			UserID:               rapid.String().Draw(t, "userID"),
			States:               rapid.SliceOf(rapid.SampledFrom(append([]string{"", "Closed", "Active,Archived"}, driver.ConversationStates...))).Draw(t, "states"),
			ParentConversationID: rapid.String().Draw(t, "parentConversationID"),
			Descendants:          rapid.Bool().Draw(t, "descendants"),
			Sort:                 rapid.SampledFrom([]string{"", "created", "updated", "activity", "title"}).Draw(t, "sort"),
			Limit:                rapid.IntRange(-1, driver.MaxLimit+1).Draw(t, "limit"),
			After:                rapid.String().Draw(t, "after"),
			Order:                rapid.SampledFrom([]string{"", "asc", "desc", "newest"}).Draw(t, "order"),
			Version:              rapid.String().Draw(t, "version"),
		}
		query, err := url.ParseQuery(options.Query().Encode())
		if err != nil {
			t.Fatal(err)
		}
		got, err := driver.ParseConversationListQuery(query)
		if options.Validate() == nil && err != nil {
			t.Fatalf("options %+v: Validate accepts them, but ParseConversationListQuery returned %v", options, err)
		}
		if err == nil && options.Validate() != nil && !slices.Contains(options.States, "Active,Archived") {
			t.Fatalf("options %+v: Validate returned %v, but ParseConversationListQuery accepts them", options, options.Validate())
		}
		if diff := cmp.Diff(options, got, cmpopts.EquateEmpty()); options.Validate() == nil && diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

// TestListedTitle: a title is shortened to whole characters.
func TestListedTitle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		title := rapid.StringN(0, 2*driver.MaxListedTitleLength, -1).Draw(t, "title")
		runes := []rune(title)
		if got, want := driver.ListedTitle(title), string(runes[:min(len(runes), driver.MaxListedTitleLength)]); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	})
}

// TestQueryRoundTrip: valid options survive the conversion to a query, and invalid ones are rejected both as options and as a
// query.
func TestQueryRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		options := driver.ResolveOptions{
			MaxDepth:           rapid.Ptr(rapid.IntRange(-1, driver.MaxDepthLimit+1), true).Draw(t, "maxDepth"),
			Last:               rapid.IntRange(-1, driver.MaxDepthLimit+1).Draw(t, "last"),
			ContinueIncomplete: rapid.Bool().Draw(t, "continueIncomplete"),
			IncludeIncomplete:  rapid.Bool().Draw(t, "includeIncomplete"),
			Origins:            rapid.Bool().Draw(t, "origins"),
			Digests:            rapid.Bool().Draw(t, "digests"),
			Instructions:       rapid.SampledFrom([]string{"", "All", "Last", "Omit", "all"}).Draw(t, "instructions"),
			Limit:              rapid.IntRange(-1, driver.MaxLimit+1).Draw(t, "limit"),
			After:              rapid.String().Draw(t, "after"),
			Order:              rapid.SampledFrom([]string{"", "asc", "desc", "newest"}).Draw(t, "order"),
			Version:            rapid.String().Draw(t, "version"),
		}
		query, err := url.ParseQuery(options.Query().Encode())
		if err != nil {
			t.Fatal(err)
		}
		got, err := driver.ParseQuery(query)
		if (err == nil) != (options.Validate() == nil) {
			t.Fatalf("options %+v: Validate returned %v, but ParseQuery returned %v", options, options.Validate(), err)
		}
		if diff := cmp.Diff(options, got); err == nil && diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}
