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
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	resolvev1alpha1 "github.com/catena-dev/catena/api/resolve/v1alpha1"
	"github.com/catena-dev/catena/catenatest"
	"github.com/catena-dev/catena/internal/chain"
)

// api is a plain HTTPS client of an API server, such as a gateway in another language uses.
type api struct {
	client *http.Client
	base   string
}

func newAPI(t *testing.T, config *rest.Config) api {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return api{client: client, base: "https://" + base.Host}
}

// aggregated returns the administrator's client of the kube-apiserver.
func aggregated(t *testing.T) api {
	t.Helper()
	return newAPI(t, env.Config)
}

// direct returns a user's client of the operator's port, without the aggregation layer.
func direct(t *testing.T, config *rest.Config, to *catenatest.Operator) api {
	t.Helper()
	config = rest.CopyConfig(config)
	config.Host = "https://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(to.Port))
	ca, err := os.ReadFile(env.ResolveCAFile)
	if err != nil {
		t.Fatal(err)
	}
	config.CAData, config.CAFile = ca, ""
	return newAPI(t, config)
}

// httpResponse is a response with its body.
type httpResponse struct {
	code   int
	header http.Header
	body   []byte
}

func (a api) do(ctx context.Context, path, accept string) (httpResponse, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, a.base+path, nil)
	if err != nil {
		return httpResponse{}, err
	}
	if accept != "" {
		request.Header.Set("Accept", accept)
	}
	response, err := a.client.Do(request)
	if err != nil {
		return httpResponse{}, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return httpResponse{response.StatusCode, response.Header, body}, err
}

func (a api) get(t *testing.T, path, accept string) httpResponse {
	t.Helper()
	response, err := a.do(t.Context(), path, accept)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

// itemsPath returns the path and query of a turn's input items.
func itemsPath(namespace, name, query string) string {
	path := "/apis/resolve.catena.dev/v1alpha1/namespaces/" + namespace + "/inputitems/" + url.PathEscape(name)
	if query != "" {
		path += "?" + query
	}
	return path
}

// verdictsPath returns the path of a namespace's verdicts.
func verdictsPath(namespace string) string {
	return "/apis/resolve.catena.dev/v1alpha1/namespaces/" + namespace + "/sessionverdicts"
}

// conversationVerdictsPath returns the path of the verdicts on a namespace's conversations.
func conversationVerdictsPath(namespace string) string {
	return "/apis/resolve.catena.dev/v1alpha1/namespaces/" + namespace + "/conversationverdicts"
}

// conversationPath returns the path of the turns of a conversation.
func conversationPath(namespace, name string) string {
	return "/apis/resolve.catena.dev/v1alpha1/namespaces/" + namespace + "/conversationturns/" + url.PathEscape(name)
}

// conversationItemsPath returns the path of the history of a conversation.
func conversationItemsPath(namespace, name string) string {
	return "/apis/resolve.catena.dev/v1alpha1/namespaces/" + namespace + "/conversationitems/" + url.PathEscape(name)
}

// resolve gets the input items of a turn and returns the response, even if it is an error.
func (a api) resolve(t *testing.T, namespace, name, query string) httpResponse {
	t.Helper()
	return a.get(t, itemsPath(namespace, name, query), "")
}

// history is InputItems with the items as received.
type history struct {
	metav1.TypeMeta
	Metadata   metav1.ObjectMeta `json:"metadata"`
	ResponseID string            `json:"responseID"`
	Turns      []string          `json:"turns"`
	Items      []json.RawMessage `json:"input"`
	Next       string            `json:"next"`
}

func (r httpResponse) decode() (history, error) {
	h := history{}
	if r.code != http.StatusOK {
		return h, fmt.Errorf("got status %d: %s", r.code, r.body)
	}
	if err := json.Unmarshal(r.body, &h); err != nil {
		return h, fmt.Errorf("unable to decode a response of %d bytes: %w", len(r.body), err)
	}
	if h.Kind != "InputItems" || h.APIVersion != resolvev1alpha1.GroupVersion.String() {
		return h, fmt.Errorf("got kind %s %s", h.APIVersion, h.Kind)
	}
	return h, nil
}

func (r httpResponse) history(t *testing.T) history {
	t.Helper()
	h, err := r.decode()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// texts returns the items as strings.
func (h history) texts() []string {
	texts := make([]string, len(h.Items))
	for i, item := range h.Items {
		texts[i] = string(item)
	}
	return texts
}

// check returns the difference to the expected history, or an empty string.
func (h history) check(turns, items []string) string {
	return cmp.Diff(turns, h.Turns) + cmp.Diff(items, h.texts())
}

func (r httpResponse) status() (metav1.Status, error) {
	status := metav1.Status{}
	if err := json.Unmarshal(r.body, &status); err != nil {
		return status, fmt.Errorf("got status %d with a body that is not JSON: %s", r.code, r.body)
	}
	if status.Kind != "Status" || int(status.Code) != r.code || status.Reason == "" {
		return status, fmt.Errorf("got status %d, want a Status object with a reason: %s", r.code, r.body)
	}
	return status, nil
}

func (r httpResponse) wantStatus(t *testing.T) metav1.Status {
	t.Helper()
	status, err := r.status()
	if err != nil {
		t.Fatal(err)
	}
	return status
}

// wantChainError checks all fields of the response that callers can act on.
func (r httpResponse) wantChainError(t *testing.T, name string, want chainError) {
	t.Helper()
	status := r.wantStatus(t)
	got := chainError{http: r.code, reason: status.Reason}
	if details := status.Details; details != nil && len(details.Causes) == 1 {
		got.code, got.at = chain.Code(details.Causes[0].Type), details.Causes[0].Field
		if details.Name != name || details.Group != resolvev1alpha1.GroupVersion.Group || details.Kind != resolvev1alpha1.Resource {
			t.Errorf("details for %s %s %q, want those for %q", details.Group, details.Kind, details.Name, name)
		}
	}
	if got != want || status.Message == "" {
		t.Errorf("got %+v, want %+v: %s", got, want, r.body)
	}
}

// chainError has the fields that distinguish the errors of broken chains.
type chainError struct {
	http   int
	reason metav1.StatusReason
	code   chain.Code
	at     string
}

func notFound(id string) chainError {
	return chainError{http.StatusNotFound, metav1.StatusReasonNotFound, chain.CodeNotFound, id}
}

func invalid(code chain.Code, at string) chainError {
	return chainError{http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, code, at}
}

func unavailable(at string) chainError {
	return chainError{http.StatusConflict, metav1.StatusReasonConflict, chain.CodeUnavailable, at}
}
