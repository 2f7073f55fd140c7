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

package e2e_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testsession"
)

func TestBadParameters(t *testing.T) {
	namespace := env.NewNamespace(t)
	createChain(t, namespace, "resp", 2)
	cases := map[string]struct {
		query string
		want  string // part of the message
	}{
		"negative maxDepth":            {query: "maxDepth=-1", want: `query parameter "maxDepth" is "-1"`},
		"maxDepth beyond the limit":    {query: "maxDepth=10001", want: "from 0 to 10000"},
		"huge maxDepth":                {query: "maxDepth=99999999999999999999", want: `"maxDepth"`},
		"maxDepth is not a number":     {query: "maxDepth=many", want: `"maxDepth"`},
		"maxDepth is a fraction":       {query: "maxDepth=1.5", want: `"maxDepth"`},
		"maxDepth is empty":            {query: "maxDepth=", want: `"maxDepth"`},
		"negative limit":               {query: "limit=-1", want: "from 1 to 1000"},
		"zero limit":                   {query: "limit=0", want: "from 1 to 1000"},
		"limit beyond the maximum":     {query: "limit=1001", want: "from 1 to 1000"},
		"huge limit":                   {query: "limit=99999999999999999999", want: "from 1 to 1000"},
		"unknown instructions":         {query: "instructions=Some", want: "one of All, Last, Omit"},
		"instructions in lower case":   {query: "instructions=all", want: "one of All, Last, Omit"},
		"unknown order":                {query: "order=random", want: "one of asc, desc"},
		"includeIncomplete":            {query: "includeIncomplete=yes", want: "true or false"},
		"resourceVersion":              {query: "resourceVersion=abc", want: `"resourceVersion"`},
		"unknown parameter":            {query: "max_depth=5", want: `query parameter "max_depth" is unknown`},
		"list parameter":               {query: "labelSelector=a", want: `query parameter "labelSelector" is unknown`},
		"repeated parameter":           {query: "limit=1&limit=2", want: `"limit" is given 2 times`},
		"repeated parameter and value": {query: "order=asc&order=asc", want: `"order" is given 2 times`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			response := aggregated(t).resolve(t, namespace, "resp_1", tc.query)
			if response.code != http.StatusBadRequest {
				t.Fatalf("got %d, want 400: %s", response.code, response.body)
			}
			if status := response.wantStatus(t); status.Reason != metav1.StatusReasonBadRequest || !strings.Contains(status.Message, tc.want) {
				t.Errorf("got %s %q, want %q", status.Reason, status.Message, tc.want)
			}
		})
	}
}

func TestUnusualIDs(t *testing.T) {
	namespace := env.NewNamespace(t)
	cases := map[string]string{
		"unicode":        "antwort-é-日本-😀",
		"spaces":         "resp a  b",
		"escapes":        "resp%2Fa+b%",
		"query":          "resp?limit=1&x#y",
		"newline":        "resp\nnext",
		"quotes":         `"><script>`,
		"512 characters": strings.Repeat("é", 512),
		"upper case":     "RESP_ABC",
		"dots":           "a..b",
		"colon":          "urn:x:y;z",
	}
	for name, id := range cases {
		t.Run(name, func(t *testing.T) {
			testsession.Make(namespace, id).Create(t, env.Client)
			testsession.Make(namespace, id[:4]+"_child_"+name).After(id).Create(t, env.Client)
			for _, name := range []string{id, v1alpha1.ObjectName(id)} {
				if diff := aggregated(t).resolve(t, namespace, name, "").history(t).check([]string{id}, testutil.Items(id)); diff != "" {
					t.Errorf("resolve by %q: %s", name, diff)
				}
			}
			child := id[:4] + "_child_" + name
			if diff := aggregated(t).resolve(t, namespace, child, "").history(t).check([]string{id, child}, testutil.Items(id, child)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestSlashInID: Kubernetes parses the part after a slash, even an escaped one, as a subresource, so the session can only
// be addressed by its object name.
func TestSlashInID(t *testing.T) {
	namespace := env.NewNamespace(t)
	const id = "team/resp_1"
	testsession.Make(namespace, id).Create(t, env.Client)
	if diff := aggregated(t).resolve(t, namespace, v1alpha1.ObjectName(id), "").history(t).check([]string{id}, testutil.Items(id)); diff != "" {
		t.Error(diff)
	}
	response := aggregated(t).resolve(t, namespace, id, "")
	if status := response.wantStatus(t); response.code != http.StatusNotFound || status.Details != nil && len(status.Details.Causes) > 0 && status.Details.Causes[0].Field != "" {
		t.Errorf("got %d, want the 404 of an unknown resource: %s", response.code, response.body)
	}
}

func TestLongIDIsNotFound(t *testing.T) {
	namespace := env.NewNamespace(t)
	for name, id := range map[string]string{
		"600 characters":        strings.Repeat("a", 600),
		"600 non-ASCII letters": strings.Repeat("日", 600),
		"254 characters":        strings.Repeat("a", 254),
	} {
		t.Run(name, func(t *testing.T) {
			aggregated(t).resolve(t, namespace, id, "").wantChainError(t, id, notFound(id))
		})
	}
}

// TestOtherRequests checks that the resource supports only get by name.
func TestOtherRequests(t *testing.T) {
	namespace := env.NewNamespace(t)
	createChain(t, namespace, "resp", 1)
	base := "/apis/resolve.catena.dev/v1alpha1/namespaces/" + namespace + "/inputitems"
	cases := map[string]struct {
		method, path string
		wantCode     int
	}{
		"list":          {http.MethodGet, base, http.StatusNotFound},
		"watch":         {http.MethodGet, base + "?watch=true", http.StatusNotFound},
		"list all":      {http.MethodGet, "/apis/resolve.catena.dev/v1alpha1/inputitems", http.StatusNotFound},
		"create":        {http.MethodPost, base, http.StatusNotFound},
		"update":        {http.MethodPut, base + "/resp_0", http.StatusMethodNotAllowed},
		"delete":        {http.MethodDelete, base + "/resp_0", http.StatusMethodNotAllowed},
		"subresource":   {http.MethodGet, base + "/resp_0/status", http.StatusNotFound},
		"other version": {http.MethodGet, strings.Replace(base, "v1alpha1", "v1", 1) + "/resp_0", http.StatusNotFound},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := aggregated(t)
			target, err := url.Parse(a.base + tc.path)
			if err != nil {
				t.Fatal(err)
			}
			response, err := a.client.Do((&http.Request{Method: tc.method, URL: target, Header: http.Header{}}).WithContext(t.Context()))
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
			if response.StatusCode != tc.wantCode {
				t.Errorf("got %d, want %d", response.StatusCode, tc.wantCode)
			}
		})
	}
}
