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

package v1alpha1

import (
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/catena-dev/catena/store/driver"
)

func TestFromQuery(t *testing.T) {
	tests := map[string]struct {
		query   string
		want    InputItemsOptions
		wantErr string
	}{
		"nothing": {},
		"everything": {
			query: "maxDepth=200&last=3&continueIncomplete=true&includeIncomplete=true&origins=true&digests=true&instructions=Last&limit=20&after=abc&order=desc&resourceVersion=12",
			want: InputItemsOptions{MaxDepth: new(int32(200)), Last: 3, ContinueIncomplete: true, IncludeIncomplete: true, Origins: true, Digests: true, Instructions: InstructionsLast,
				Limit: 20, After: "abc", Order: OrderDescending, ResourceVersion: "12"},
		},
		"no depth at all":              {query: "maxDepth=0", want: InputItemsOptions{MaxDepth: new(int32(0))}},
		"what Kubernetes clients send": {query: "pretty=true&timeout=5s&includeObject=Metadata&resourceVersion="},
		"no cursor yet":                {query: "limit=1000&after=", want: InputItemsOptions{Limit: 1000}},

		"unknown parameter":        {query: "max_depth=1", wantErr: `query parameter "max_depth" is unknown: must be one of maxDepth, `},
		"unknown case":             {query: "MaxDepth=1", wantErr: `query parameter "MaxDepth" is unknown`},
		"given twice":              {query: "limit=1&limit=2", wantErr: `"limit" is given 2 times`},
		"negative depth":           {query: "maxDepth=-1", wantErr: `"maxDepth" is "-1": must be a whole number from 0`},
		"huge depth":               {query: "maxDepth=99999999999999999999", wantErr: `must be a whole number from 0`},
		"depth, not a number":      {query: "maxDepth=many", wantErr: `"maxDepth" is "many"`},
		"no last turns":            {query: "last=0", wantErr: `"last" is "0": must be a whole number from 1 to 10000`},
		"negative last turns":      {query: "last=-1", wantErr: `from 1 to 10000`},
		"too many last turns":      {query: "last=10001", wantErr: `from 1 to 10000`},
		"negative limit":           {query: "limit=-5", wantErr: `"limit" is "-5": must be a whole number from 1 to 1000`},
		"limit of zero":            {query: "limit=0", wantErr: `from 1 to 1000`},
		"huge limit":               {query: "limit=1001", wantErr: `from 1 to 1000`},
		"empty limit":              {query: "limit=", wantErr: `"limit" is ""`},
		"unknown instructions":     {query: "instructions=all", wantErr: `"instructions" is "all": must be one of All, Last, Omit`},
		"unknown order":            {query: "order=newest", wantErr: `"order" is "newest": must be one of asc, desc`},
		"unknown truth":            {query: "includeIncomplete=yes", wantErr: `must be true or false`},
		"resource version":         {query: "resourceVersion=abc", wantErr: `"resourceVersion" is "abc"`},
		"negative version":         {query: "resourceVersion=-1", wantErr: `"resourceVersion" is "-1"`},
		"cursor without limit":     {query: "after=abc", wantErr: `"after" needs "limit"`},
		"a value that is too long": {query: "order=" + strings.Repeat("x", 5000), wantErr: `must be one of`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			if err := AddToScheme(scheme); err != nil {
				t.Fatalf("Unable to make the scheme: %v", err)
			}
			query, err := url.ParseQuery(tc.query)
			if err != nil {
				t.Fatalf("Unable to parse the query: %v", err)
			}
			var got InputItemsOptions
			err = runtime.NewParameterCodec(scheme).DecodeParameters(query, GroupVersion, &got)
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) || len(err.Error()) > 300 {
					t.Errorf("Unexpected error: want %q in it, got %v", tc.wantErr, err)
				}
				return
			}
			if err != nil {
				t.Fatalf("Unexpected error: %v", err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Unexpected options (-want,+got):\n%s", diff)
			}
		})
	}
}

// TestQueryRoundTrip: what a client encodes is what the server reads.
func TestQueryRoundTrip(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		t.Fatalf("Unable to make the scheme: %v", err)
	}
	codec := runtime.NewParameterCodec(scheme)
	want := InputItemsOptions{MaxDepth: new(int32(0)), IncludeIncomplete: true, Limit: 5, After: "a-b_c", Order: OrderAscending}
	query, err := codec.EncodeParameters(&want, GroupVersion)
	if err != nil {
		t.Fatalf("Unable to encode: %v", err)
	}
	var got InputItemsOptions
	if err := codec.DecodeParameters(query, GroupVersion, &got); err != nil {
		t.Fatalf("Unable to decode %v: %v", query, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Unexpected options (-want,+got):\n%s", diff)
	}
}

// TestConversationListsRoundTrip: what a client encodes is what the server reads, and what the store gets.
func TestConversationListsRoundTrip(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		t.Fatalf("Unable to make the scheme: %v", err)
	}
	codec := runtime.NewParameterCodec(scheme)
	want := ConversationListsOptions{
		UserID: "maria & co", State: []string{"Active", "Archived"}, ParentConversationID: "a/b", Descendants: true, Sort: "activity", Order: "asc",
		Limit: 5, After: "a-b_c", ResourceVersion: "7",
	}
	query, err := codec.EncodeParameters(&want, GroupVersion)
	if err != nil {
		t.Fatalf("Unable to encode: %v", err)
	}
	var got ConversationListsOptions
	if err := codec.DecodeParameters(query, GroupVersion, &got); err != nil {
		t.Fatalf("Unable to decode %v: %v", query, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Unexpected options (-want,+got):\n%s", diff)
	}
	options, err := got.ListOptions()
	wantOptions := driver.ConversationListOptions{
		UserID: "maria & co", States: []string{"Active", "Archived"}, ParentConversationID: "a/b", Descendants: true, Sort: "activity", Order: "asc",
		Limit: 5, After: "a-b_c", Version: "7",
	}
	if diff := cmp.Diff(wantOptions, options); diff != "" || err != nil {
		t.Errorf("Unexpected options of the store (-want,+got):\n%s%v", diff, err)
	}
}

// namesOf returns the JSON names of a struct of options.
func namesOf(options reflect.Type) (names []string) {
	for field := range options.Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" && name != "-" {
			names = append(names, name)
		}
	}
	return names
}

// TestConversationListsAreThoseOfTheStore is TestOptionsAreThoseOfTheStore for lists of conversations.
func TestConversationListsAreThoseOfTheStore(t *testing.T) {
	want, got := namesOf(reflect.TypeFor[driver.ConversationListOptions]()), namesOf(reflect.TypeFor[ConversationListsOptions]())
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Unexpected options (-want,+got):\n%s", diff)
	}
	docs := ConversationListsOptions{}.SwaggerDoc()
	for name, wantTexts := range map[string][]string{
		"state":       {strings.Join(driver.ConversationStates, ", ")},
		"descendants": {"10,000"},
		"sort":        {driver.SortCreated + " (the default), " + driver.SortUpdated + ", or " + driver.SortActivity},
		"limit":       {fmt.Sprintf("from 1 to %d.", driver.MaxLimit)},
		"order":       {OrderDescending + " (the default)", OrderAscending + " for"},
	} {
		for _, text := range wantTexts {
			if !strings.Contains(docs[name], text) {
				t.Errorf("The documentation of %s lacks %q: %s", name, text, docs[name])
			}
		}
	}
}

// TestOptionsAreThoseOfTheStore: InputItemsOptions has the options of package store that have a JSON name, under the same names and with the
// allowed values in its documentation, which is the text of the schema.
func TestOptionsAreThoseOfTheStore(t *testing.T) {
	want, got := namesOf(reflect.TypeFor[driver.ResolveOptions]()), namesOf(reflect.TypeFor[InputItemsOptions]())
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Unexpected options (-want,+got):\n%s", diff)
	}
	docs := InputItemsOptions{}.SwaggerDoc()
	for name, wantTexts := range map[string][]string{
		"maxDepth":     {fmt.Sprintf("at most %d.", driver.MaxDepthLimit)},
		"last":         {fmt.Sprintf("from 1 to %d;", driver.MaxDepthLimit)},
		"limit":        {fmt.Sprintf("from 1 to %d.", driver.MaxLimit)},
		"instructions": {InstructionsAll + " (the default)", InstructionsLast + " only", InstructionsOmit + " none"},
		"order":        {OrderAscending + " (the default)", OrderDescending + " for"},
	} {
		for _, text := range wantTexts {
			if !strings.Contains(docs[name], text) {
				t.Errorf("The documentation of %s lacks %q: %s", name, text, docs[name])
			}
		}
	}
}
