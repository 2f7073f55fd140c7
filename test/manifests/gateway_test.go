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

package manifests_test

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tidwall/gjson"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/catena-dev/catena/catenatest"
	"github.com/catena-dev/catena/internal/gateway/enginetest"
	"github.com/catena-dev/catena/internal/testenv"
	"github.com/catena-dev/catena/store/driver"
)

// TestGatewayRights: the gateway needs each of the rights that it gets in the namespace of a tenant, and no others.
func TestGatewayRights(t *testing.T) {
	c := sharedCluster(t)
	tenant := c.Namespace(t)
	values := fmt.Sprintf(`gateway: {enabled: true, upstream: {url: "http://engine"}, namespaces: [%s]}`, tenant)
	objects := render(t, namespace, values)
	ensureNamespaces(t, c.Client, namespace)
	for _, object := range objects {
		if object.GetName() == "catena-gateway" && strings.Contains("ClusterRole RoleBinding ServiceAccount", object.GetKind()) {
			if err := apply(t.Context(), c.Client, object.DeepCopy()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := c.StartOperator(t.Context(), catenatest.OperatorOptions{}); err != nil {
		t.Fatal(err)
	}
	user := "system:serviceaccount:" + namespace + ":catena-gateway"
	kubeconfig, err := c.KubeconfigFor(user, "system:serviceaccounts", "system:serviceaccounts:"+namespace, "system:authenticated")
	if err != nil {
		t.Fatal(err)
	}
	engine := httptest.NewServer(failOnce(enginetest.Handler()))
	defer engine.Close()
	gateway, err := c.StartGateway(t.Context(), testenv.GatewayOptions{Upstream: engine.URL, Args: []string{"--store=" + testenv.StoreURL(tenant, kubeconfig)}})
	if err != nil {
		t.Fatal(err)
	}
	useGateway(t, gateway.URL)
	useConversations(t, gateway.URL)
	useSummaries(t, testenv.StoreURL(tenant, kubeconfig), tenant)

	unused := rightsOf(t, objects)
	for _, event := range c.events(t, user) {
		if event.ObjectRef == nil || event.ObjectRef.Namespace != tenant {
			continue
		}
		if event.ResponseStatus.Code == http.StatusForbidden {
			t.Errorf("%s %s is forbidden", event.Verb, event.RequestURI)
		}
		delete(unused, event.Verb+" "+event.ObjectRef.Resource)
	}
	if len(unused) > 0 {
		t.Errorf("the gateway has not used its rights to %v", slices.Collect(maps.Keys(unused)))
	}
}

// rightsOf returns the rights of the gateway, as "VERB RESOURCE".
func rightsOf(t *testing.T, objects []*unstructured.Unstructured) map[string]bool {
	t.Helper()
	rights := map[string]bool{}
	for _, role := range decode[rbacv1.ClusterRole](t, "ClusterRole", objects) {
		if role.Name != "catena-gateway" {
			continue
		}
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					rights[verb+" "+resource] = true
				}
			}
		}
	}
	return rights
}

// useGateway does everything that a client can do with responses.
func useGateway(t *testing.T, url string) {
	t.Helper()
	hello := `{"model": "scripted", "input": "Hello."}`
	failed := request(t, http.MethodPost, url+"/v1/responses", "key", hello).Get("id").Str
	first := request(t, http.MethodPost, url+"/v1/responses", "key", hello).Get("id").Str
	if first != failed {
		t.Errorf("the repeated request has made the turn %s, want the place of %s, which failed", first, failed)
	}
	body := fmt.Sprintf(`{"model": "scripted", "input": %q, "previous_response_id": %q}`, noise(), first)
	second := request(t, http.MethodPost, url+"/v1/responses", "", body).Get("id").Str
	request(t, http.MethodGet, url+"/v1/responses/"+second, "", "")
	request(t, http.MethodGet, url+"/v1/responses/"+second+"/input_items", "", "")
	request(t, http.MethodDelete, url+"/v1/responses/"+second, "", "")
	request(t, http.MethodDelete, url+"/v1/responses/"+first, "", "")
}

// useConversations does everything that a client can do with conversations.
func useConversations(t *testing.T, url string) {
	t.Helper()
	const items = `{"items": [{"role": "user", "content": "Hello."}]}`
	conversation := url + "/v1/conversations/" + request(t, http.MethodPost, url+"/v1/conversations", "", items).Get("id").Str
	request(t, http.MethodPost, conversation+"/items", "key", items)
	body := fmt.Sprintf(`{"model": "scripted", "input": "Again.", "conversation": %q}`, path.Base(conversation))
	response := request(t, http.MethodPost, url+"/v1/responses", "", body).Get("id").Str
	listed := request(t, http.MethodGet, conversation+"/items", "", "").Get("data.#.id").Array()
	if len(listed) != 4 {
		t.Fatalf("the conversation has the items %v, want two and those of a response", listed)
	}
	item := conversation + "/items/" + listed[0].Str
	request(t, http.MethodGet, item, "", "")
	request(t, http.MethodDelete, item, "", "")
	request(t, http.MethodPost, conversation, "", `{"metadata": {"topic": "rights"}}`)
	request(t, http.MethodGet, conversation, "", "")
	request(t, http.MethodDelete, url+"/v1/responses/"+response, "", "") // it is the last one, so that the conversation ends before it
	request(t, http.MethodDelete, conversation, "", "")
}

// useSummaries saves and reads summaries, which the gateway does not do, as programs that use the library with its role.
func useSummaries(t *testing.T, url, namespace string) {
	t.Helper()
	opened, _, err := driver.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = opened.Close() }()
	conversations, err := driver.Optional[driver.Conversations](opened, "use conversations")
	if err != nil {
		t.Fatal(err)
	}
	const id = "conv_1"
	_, createErr := conversations.CreateConversation(t.Context(), namespace, &driver.Conversation{ConversationID: id, State: driver.ConversationActive})
	_, updateErr := conversations.UpdateConversation(t.Context(), namespace, id, driver.ConversationUpdate{State: driver.ConversationArchived})
	summary := driver.Summary{EndTurn: 1, Content: "They talked."}
	saveErr := conversations.SaveSummary(t.Context(), namespace, id, summary)
	saveAgainErr := conversations.SaveSummary(t.Context(), namespace, id, summary)
	_, summariesErr := conversations.Summaries(t.Context(), namespace, id)
	deleteErr := conversations.DeleteConversation(t.Context(), namespace, id)
	if err := errors.Join(createErr, updateErr, saveErr, saveAgainErr, summariesErr, deleteErr); err != nil {
		t.Error(err)
	}
}

// failOnce makes the first response of an engine a failed one.
func failOnce(engine http.Handler) http.Handler {
	var once sync.Once
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		recorder := httptest.NewRecorder()
		engine.ServeHTTP(recorder, r)
		body := recorder.Body.Bytes()
		once.Do(func() { body = bytes.Replace(body, []byte(`"completed"`), []byte(`"failed"`), 1) })
		w.Header().Set("Content-Type", recorder.Header().Get("Content-Type"))
		_, _ = w.Write(body) // fails only if the client has disconnected
	})
}

// noise returns a text that is too large to be stored in a session, even if it is compressed.
func noise() string {
	random := make([]byte, 512<<10)
	_, _ = rand.Read(random) // never fails
	return hex.EncodeToString(random)
}

// request sends a request, which must succeed, and returns the answer.
func request(t *testing.T, method, url, key, body string) gjson.Result {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %s, %v: %s", method, url, response.Status, err, content)
	}
	return gjson.ParseBytes(content)
}
