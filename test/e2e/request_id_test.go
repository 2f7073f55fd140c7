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
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/catena-dev/catena/internal/gateway/enginetest"
	"github.com/catena-dev/catena/internal/testenv"
	"github.com/catena-dev/catena/internal/testutil"
)

// TestRequestIDs: the operator logs the ID of a request to a gateway for which it resolves a turn, and the ID of the kube-apiserver's audit
// log. It does not log an ID that is not valid.
func TestRequestIDs(t *testing.T) {
	if err := operator.Stop(); err != nil {
		t.Error(err)
	}
	operator = startOperator(t, operator.Port, "--log-level=DEBUG")
	t.Cleanup(func() { restartOperator(t) })
	if err := env.WaitForResolveAPI(t.Context()); err != nil {
		t.Fatal(err)
	}
	namespace := env.NewNamespace(t)
	engine := httptest.NewServer(enginetest.Handler())
	defer engine.Close()
	gateway, err := env.StartGateway(t.Context(), testenv.GatewayOptions{Namespace: namespace, Upstream: engine.URL})
	if err != nil {
		t.Fatal(err)
	}
	post := func(id, previous string) (responseID string) {
		t.Helper()
		body := strings.NewReader(fmt.Sprintf(`{"model":"scripted","input":"hi","previous_response_id":%q}`, previous))
		if previous == "" {
			body = strings.NewReader(`{"model":"scripted","input":"hi"}`)
		}
		header, created := send(t, http.DefaultClient, http.MethodPost, gateway.URL+"/v1/responses", body, id)
		if got := header.Get("X-Request-Id"); got != id {
			t.Errorf("the gateway answered with the request ID %q, want %q", got, id)
		}
		return created.ID
	}
	first := post("first", "")
	post("second.of-2_", first)
	post("third", "resp_none")
	direct := newAPI(t, env.Config)
	header, _ := send(t, direct.client, http.MethodGet, direct.base+itemsPath(namespace, first, ""), http.NoBody, "forged ID")

	want := []resolveLine{
		{"Resolved a response", namespace, first, "second.of-2_", "", "ok"},
		{"Did not resolve a response", namespace, "resp_none", "third", "", "session.chain.not_found"},
		{"Resolved a response", namespace, first, "", header.Get("Audit-Id"), "ok"},
	}
	testutil.Eventually(t, func(context.Context) error {
		got := resolveLines(t, operator.LogFile, namespace)
		for i := range min(2, len(got)) {
			if got[i].AuditID == "" {
				return fmt.Errorf("%v has no audit ID", got[i])
			}
			got[i].AuditID = "" // that of a request of the gateway
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("log (-want +got):\n%s", diff)
		}
		return nil
	})
}

// send sends a request with an ID, and returns the header of the response and a part of its body.
func send(
	t *testing.T, client *http.Client, method, url string, body io.Reader, id string,
) (header http.Header, answer struct{ ID string }) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-Request-Id", id)
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	return response.Header, answer
}

// resolveLine is a line of an operator's log about a resolve.
type resolveLine struct{ Msg, Namespace, Name, RequestID, AuditID, Code string }

// resolveLines returns the lines about resolves in a namespace.
func resolveLines(t *testing.T, log, namespace string) (lines []resolveLine) {
	t.Helper()
	file, err := os.Open(log)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	scanner := bufio.NewScanner(file)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		var line resolveLine
		if json.Unmarshal(scanner.Bytes(), &line) == nil && line.Namespace == namespace && strings.Contains(line.Msg, "a response") {
			lines = append(lines, line)
		}
	}
	return lines
}
