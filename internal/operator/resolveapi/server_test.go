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
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta/table"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/operator/resolve"
	"github.com/catena-dev/catena/internal/operator/sessions"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/golden"
)

// resolveStub resolves only resp_2 of team-a, whose parent is resp_1.
func resolveStub(t testing.TB) ResolveFunc {
	history := makeHistory(testutil.FlattenTurn(t, "be brief", `{"role":"user","content":"hi"}`), testutil.FlattenTurn(t, "", `{ "n" : 1.0 }`))
	return func(_ context.Context, namespace, name string, _ uint64, options resolve.Query) (*resolve.Result, error) {
		switch {
		case namespace != "team-a":
			return nil, fmt.Errorf("namespace %q was resolved", namespace)
		case name != "resp_2" && name != "resp.2":
			return nil, &chain.Error{Rule: chain.NotFound, ResponseID: name, PreviousResponseID: name}
		case options.MaxDepth < 2:
			return nil, &chain.Error{Rule: chain.DepthExceeded, ResponseID: "resp_1", PreviousResponseID: name, MaxDepth: options.MaxDepth}
		}
		return history, nil
	}
}

func TestServer(t *testing.T) {
	ts := startServer(t, resolveStub(t))
	tests := map[string]struct {
		path     string
		token    string
		accept   string
		want     int
		wantType string
		wantBody []string
	}{
		"JSON": {
			path: inputItems + "resp_2", token: "alice", want: 200, wantType: "application/json",
			wantBody: []string{`{"kind":"InputItems","apiVersion":"resolve.catena.dev/v1alpha1"`, `"turns":["resp_1","resp_2"]`, `,{ "n" : 1.0 }]}`},
		},
		"object name": {
			path: inputItems + "resp.2", token: "alice", want: 200, wantBody: []string{`"responseID":"resp_2"`},
		},
		"YAML": {
			path: inputItems + "resp_2", token: "alice", accept: "application/yaml", want: 406, wantBody: []string{"NotAcceptable"},
		},
		"verdicts as YAML": {
			path: sessionVerdicts, token: "alice", accept: "application/yaml", want: 406, wantBody: []string{"NotAcceptable"},
		},
		"table": {
			path: inputItems + "resp_2", token: "alice", accept: "application/json;as=Table;v=v1;g=meta.k8s.io,application/json", want: 200, wantType: "application/json",
			wantBody: []string{`"kind":"Table"`, `"cells":[1,"resp_1","message","user","hi"]`, `"kind":"PartialObjectMetadata"`},
		},
		"table with objects": {
			path: inputItems + "resp_2?includeObject=Object", token: "alice", accept: "application/json;as=Table;v=v1;g=meta.k8s.io", want: 200,
			wantBody: []string{`"kind":"InputItems"`, `"cells":[1,"resp_1","message","user","hi"]`},
		},
		"metadata": {
			path: inputItems + "resp_2", token: "alice", accept: "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", want: 200,
			wantBody: []string{`"kind":"PartialObjectMetadata"`, testUID},
		},
		"protobuf": {
			path: inputItems + "resp_2", token: "alice", accept: "application/vnd.kubernetes.protobuf", want: 406, wantBody: []string{"NotAcceptable"},
		},
		"a page": {
			path: inputItems + "resp_2?limit=1&order=desc", token: "alice", want: 200, wantBody: []string{`"input":[{ "n" : 1.0 }],"next":"`},
		},
		"not found": {
			path: inputItems + "resp_9", token: "alice", want: 404,
			wantBody: []string{`"reason":"NotFound"`, `"causes":[{"reason":"session.chain.not_found","message":"response \"resp_9\" was not found","field":"resp_9"}]`},
		},
		"too deep": {
			path: inputItems + "resp_2?maxDepth=1", token: "alice", want: 422, wantBody: []string{`"reason":"session.chain.depth_exceeded"`, `"field":"resp_1"`},
		},
		"bad cursor":          {path: inputItems + "resp_2?limit=1&after=x", token: "alice", want: 400, wantBody: []string{`"reason":"BadRequest"`, "not a cursor"}},
		"depth above limit":   {path: inputItems + "resp_2?maxDepth=10001", token: "alice", want: 400, wantBody: []string{"from 0 to 10000"}},
		"unknown parameter":   {path: inputItems + "resp_2?foo=1", token: "alice", want: 400, wantBody: []string{`query parameter \"foo\" is unknown`}},
		"list":                {path: strings.TrimSuffix(inputItems, "/"), token: "alice", want: 403},
		"bad token":           {path: inputItems + "resp_2", token: "mallory", want: 401, wantBody: []string{`"reason":"Unauthorized"`}},
		"anonymous":           {path: inputItems + "resp_2", want: 403, wantBody: []string{`"reason":"Forbidden"`, "system:anonymous"}},
		"anonymous bad query": {path: inputItems + "resp_2?foo=1", want: 403},
		"another namespace": {
			path: strings.Replace(inputItems, "team-a", "team-b", 1) + "resp_2", token: "alice", want: 403, wantBody: []string{`"reason":"Forbidden"`},
		},
		"anonymous readiness": {path: "/readyz?verbose", want: 200, wantBody: []string{"[+]sessions-synced ok"}},
		"anonymous health":    {path: "/healthz", want: 200},
		"metrics":             {path: "/metrics", token: "alice", want: 200, wantBody: []string{"catena_resolve_requests_total"}},
		"anonymous metrics":   {path: "/metrics", want: 403},
		"discovery": {
			path: "/apis/resolve.catena.dev/v1alpha1", token: "alice", want: 200,
			wantBody: []string{`{"name":"inputitems","singularName":"inputitems","namespaced":true,"kind":"InputItems","verbs":["get"]}`},
		},
		"discovery of verdicts": {
			path: "/apis/resolve.catena.dev/v1alpha1", token: "alice", want: 200,
			wantBody: []string{`{"name":"sessionverdicts","singularName":"sessionverdict","namespaced":true,"kind":"SessionVerdict","verbs":["get","list"]}`},
		},
		"OpenAPI v3": {
			path: "/openapi/v3/apis/resolve.catena.dev/v1alpha1", token: "alice", want: 200,
			wantBody: []string{`"dev.catena.resolve.v1alpha1.InputItems"`, `"name":"includeIncomplete"`, "ready to be the input of the next request"},
		},
		"verdicts of another namespace": {path: strings.Replace(sessionVerdicts, "team-a", "team-b", 1), token: "alice", want: 403},
		"anonymous verdicts":            {path: sessionVerdicts, want: 403},
		"watch of verdicts":             {path: sessionVerdicts + "?watch=true", token: "alice", want: 405},
		"verdict as protobuf":           {path: sessionVerdicts + "/resp.1", token: "alice", accept: "application/vnd.kubernetes.protobuf", want: 406},
		"missing verdict":               {path: sessionVerdicts + "/resp.0", token: "alice", want: 404, wantBody: []string{`sessionverdicts.resolve.catena.dev \"resp.0\" not found`}},
		"verdict by response ID":        {path: sessionVerdicts + "/resp_1", token: "alice", want: 404},
		"verdicts by label":             {path: sessionVerdicts + "?labelSelector=a", token: "alice", want: 400},
		"verdicts by unsupported field": {path: sessionVerdicts + "?fieldSelector=reason%3DResolved", token: "alice", want: 400},
		"verdicts by name": {
			path: sessionVerdicts + "?fieldSelector=metadata.namespace%3Dteam-a,metadata.name!%3Dresp.1", token: "alice", want: 200,
			wantBody: []string{`"items":[{"metadata":{"name":"resp.2"`},
		},
		"invalid continue token":            {path: sessionVerdicts + "?continue=x", token: "alice", want: 400},
		"continue token of other namespace": {path: sessionVerdicts + "?continue=" + newContinue(types.NamespacedName{Namespace: "team-b", Name: "x"}), token: "alice", want: 400},
		"verdicts at current version":       {path: sessionVerdicts + "?resourceVersion=7", token: "alice", want: 200},
		"verdicts at future version":        {path: sessionVerdicts + "?resourceVersion=8", token: "alice", want: 503},
		"verdicts at exactly a version": {
			path: sessionVerdicts + "?resourceVersion=7&resourceVersionMatch=Exact", token: "alice", want: 400,
			wantBody: []string{"resourceVersionMatch=Exact is not supported"},
		},
		"verdicts not older than a version": {
			path: sessionVerdicts + "?resourceVersion=7&resourceVersionMatch=NotOlderThan", token: "alice", want: 200,
		},
		"verdict at future version":  {path: sessionVerdicts + "/resp.1?resourceVersion=8", token: "alice", want: 503},
		"verdict at invalid version": {path: sessionVerdicts + "/resp.1?resourceVersion=x", token: "alice", want: 400},
		"discovery of conversation verdicts": {
			path: "/apis/resolve.catena.dev/v1alpha1", token: "alice", want: 200,
			wantBody: []string{
				`{"name":"conversationverdicts","singularName":"conversationverdict","namespaced":true,` +
					`"kind":"ConversationVerdict","verbs":["get","list"]}`,
			},
		},
		"OpenAPI v3 of conversation verdicts": {
			path: "/openapi/v3/apis/resolve.catena.dev/v1alpha1", token: "alice", want: 200,
			wantBody: []string{`"dev.catena.resolve.v1alpha1.ConversationVerdict"`, "headResolved is the status of the condition"},
		},
		"conversation verdicts as YAML": {path: conversationVerdicts, token: "alice", accept: "application/yaml", want: 406},
		"conversation verdicts of another namespace": {
			path: strings.Replace(conversationVerdicts, "team-a", "team-b", 1), token: "alice", want: 403,
		},
		"anonymous conversation verdicts": {path: conversationVerdicts, want: 403},
		"watch of conversation verdicts":  {path: conversationVerdicts + "?watch=true", token: "alice", want: 405},
		"missing conversation verdict": {
			path: conversationVerdicts + "/conv.0", token: "alice", want: 404,
			wantBody: []string{`conversationverdicts.resolve.catena.dev \"conv.0\" not found`},
		},
		"verdict on a conversation that is being deleted": {path: conversationVerdicts + "/conv.4", token: "alice", want: 404},
		"conversation verdict by conversation ID":         {path: conversationVerdicts + "/conv_1", token: "alice", want: 404},
		"conversation verdicts by label": {
			path: conversationVerdicts + "?labelSelector=a", token: "alice", want: 400,
			wantBody: []string{"list Conversations with the label selector"},
		},
		"conversation verdicts by unsupported field": {path: conversationVerdicts + "?fieldSelector=state%3DActive", token: "alice", want: 400},
		"conversation verdicts by name": {
			path: conversationVerdicts + "?fieldSelector=metadata.namespace%3Dteam-a,metadata.name!%3Dconv.1", token: "alice", want: 200,
			wantBody: []string{`"items":[{"metadata":{"name":"conv.2"`},
		},
		"conversation verdicts with invalid continue token": {path: conversationVerdicts + "?continue=x", token: "alice", want: 400},
		"conversation verdicts at current version":          {path: conversationVerdicts + "?resourceVersion=7", token: "alice", want: 200},
		"conversation verdicts at future version":           {path: conversationVerdicts + "?resourceVersion=8", token: "alice", want: 503},
		"conversation verdicts at exactly a version": {
			path: conversationVerdicts + "?resourceVersion=7&resourceVersionMatch=Exact", token: "alice", want: 400,
			wantBody: []string{"resourceVersionMatch=Exact is not supported"},
		},
		"conversation verdict at future version": {
			path: conversationVerdicts + "/conv.1?resourceVersion=8", token: "alice", want: 503,
		},
		"conversation verdict at invalid version": {
			path: conversationVerdicts + "/conv.1?resourceVersion=x", token: "alice", want: 400,
		},
		"conversations": {path: strings.TrimSuffix(conversationsOf, "/"), token: "alice", want: 403},
		"discovery of conversations": {
			path: "/apis/resolve.catena.dev/v1alpha1", token: "alice", want: 200,
			wantBody: []string{`{"name":"conversationturns","singularName":"conversationturns","namespaced":true,"kind":"ConversationTurns","verbs":["get"]}`},
		},
		"conversation by object name":         {path: conversationsOf + "conv.1", token: "alice", want: 200, wantBody: []string{`"conversationID":"conv_1","turns":[{"responseID":"resp_2"`}},
		"conversation by hash":                {path: conversationsOf + v1alpha1.ObjectName("conv.1"), token: "alice", want: 200, wantBody: []string{`"conversationID":"conv.1","turns":[{"responseID":"resp_9"`}},
		"unknown conversation":                {path: conversationsOf + "conv_9", token: "alice", want: 200, wantBody: []string{`"name":"conv.9"`, `"conversationID":"conv_9","turns":[]}`}},
		"unknown conversation by object name": {path: conversationsOf + "conv.9", token: "alice", want: 200, wantBody: []string{`"name":"conv.9"`, `"conversationID":"conv_9","turns":[]}`}},
		"unknown conversation by hash":        {path: conversationsOf + v1alpha1.ObjectName("conv.9"), token: "alice", want: 200, wantBody: []string{`"name":"` + v1alpha1.ObjectName("conv.9") + `"`, `"turns":[]}`}},
		"conversation of another namespace":   {path: strings.Replace(conversationsOf, "team-a", "team-b", 1) + "conv_1", token: "alice", want: 403},
		"anonymous conversation":              {path: conversationsOf + "conv_1", want: 403},
		"conversation as protobuf":            {path: conversationsOf + "conv_1", token: "alice", accept: "application/vnd.kubernetes.protobuf", want: 406},
		"conversation with limit 0":           {path: conversationsOf + "conv_1?limit=0", token: "alice", want: 400, wantBody: []string{`\"limit\" is \"0\": must be a whole number from 1 to 1000`}},
		"conversation with unknown parameter": {path: conversationsOf + "conv_1?maxDepth=1", token: "alice", want: 400, wantBody: []string{`\"maxDepth\" is unknown: must be one of limit, after, order, history, resourceVersion`}},
		"conversation with bad cursor":        {path: conversationsOf + "conv_1?after=x", token: "alice", want: 400, wantBody: []string{"not a cursor"}},
		"conversation with bad order":         {path: conversationsOf + "conv_1?order=up", token: "alice", want: 400, wantBody: []string{"must be one of asc, desc"}},
		"conversation at current version":     {path: conversationsOf + "conv_1?resourceVersion=7", token: "alice", want: 200},
		"conversation at future version":      {path: conversationsOf + "conv_1?resourceVersion=8", token: "alice", want: 503, wantBody: []string{`"retryAfterSeconds":1`, "has not seen resource version 8"}},
		"conversation at invalid version":     {path: conversationsOf + "conv_1?resourceVersion=x", token: "alice", want: 400},
		"OpenAPI v3 of conversations":         {path: "/openapi/v3/apis/resolve.catena.dev/v1alpha1", token: "alice", want: 200, wantBody: []string{`"dev.catena.resolve.v1alpha1.ConversationTurns"`, "or desc for the newest"}},
		"history of a conversation": {
			path: conversationsOf + "conv.1?history=true&limit=1&order=desc", token: "alice", want: 200,
			wantBody: []string{`"metadata":{"name":"conv.1"`, `"conversationID":"conv_1","turns":[{"responseID":"resp_2","previousResponseID":"resp_1"`, `"count":2`},
		},
		"history without turns":            {path: conversationsOf + "conv_2?history=true", token: "alice", want: 200, wantBody: []string{`"turns":[]}`}},
		"history of no conversation":       {path: conversationsOf + "conv_9?history=true", token: "alice", want: 404, wantBody: []string{`"reason":"session.conversation.not_found"`}},
		"history with bad cursor":          {path: conversationsOf + "conv_1?history=true&after=x", token: "alice", want: 400, wantBody: []string{"not a cursor"}},
		"history at invalid version":       {path: conversationsOf + "conv_1?history=true&resourceVersion=x", token: "alice", want: 400},
		"conversation items":               {path: itemsOf + "conv_1", token: "alice", want: 200, wantType: "application/json"},
		"conversation items as protobuf":   {path: itemsOf + "conv_1", token: "alice", accept: "application/vnd.kubernetes.protobuf", want: 406},
		"anonymous conversation items":     {path: itemsOf + "conv_1", want: 403},
		"conversation items, other tenant": {path: strings.Replace(itemsOf, "team-a", "team-b", 1) + "conv_1", token: "alice", want: 403},
		"all conversation items":           {path: strings.TrimSuffix(itemsOf, "/"), token: "alice", want: 403},
		"conversation items, bad cursor":   {path: itemsOf + "conv_1?limit=1&after=x", token: "alice", want: 400, wantBody: []string{"not a cursor"}},
		"conversation items, last 0":       {path: itemsOf + "conv_1?last=0", token: "alice", want: 400, wantBody: []string{`\"last\" is \"0\"`}},
		"conversation items, head deleted": {
			path: itemsOf + "conv_3", token: "alice", want: 404,
			wantBody: []string{`"kind":"conversationitems"`, `"reason":"session.chain.not_found"`, `"field":"resp_7"`},
		},
		"discovery of conversation items": {
			path: "/apis/resolve.catena.dev/v1alpha1", token: "alice", want: 200,
			wantBody: []string{`{"name":"conversationitems","singularName":"conversationitems","namespaced":true,"kind":"ConversationItems","verbs":["get"]}`},
		},
		"OpenAPI v3 of conversation items": {
			path: "/openapi/v3/apis/resolve.catena.dev/v1alpha1", token: "alice", want: 200,
			wantBody: []string{`"dev.catena.resolve.v1alpha1.ConversationItems"`, "without the hidden items", `"name":"last"`},
		},
		"OpenAPI v2": {path: "/openapi/v2", token: "alice", want: 200, wantBody: []string{"Catena resolve API"}},
		"lists":      {path: strings.TrimSuffix(lists, "/"), token: "alice", want: 403},
		"discovery of lists": {
			path: "/apis/resolve.catena.dev/v1alpha1", token: "alice", want: 200,
			wantBody: []string{`{"name":"conversationlists","singularName":"conversationlists","namespaced":true,"kind":"ConversationLists","verbs":["get"]}`},
		},
		"unknown list":                {path: lists + "active", token: "alice", want: 404, wantBody: []string{`conversationlists.resolve.catena.dev \"active\" not found`}},
		"list of another namespace":   {path: strings.Replace(lists, "team-a", "team-b", 1) + "all", token: "alice", want: 403},
		"anonymous list":              {path: lists + "all", want: 403},
		"list as protobuf":            {path: lists + "all", token: "alice", accept: "application/vnd.kubernetes.protobuf", want: 406},
		"list with limit 0":           {path: lists + "all?limit=0", token: "alice", want: 400, wantBody: []string{`\"limit\" is \"0\": must be a whole number from 1 to 1000`}},
		"list with unknown parameter": {path: lists + "all?user=1", token: "alice", want: 400, wantBody: []string{`\"user\" is unknown: must be one of userID, state, parent`}},
		"list with bad cursor":        {path: lists + "all?after=x", token: "alice", want: 400, wantBody: []string{"not a cursor"}},
		"list with bad state":         {path: lists + "all?state=Active,Closed", token: "alice", want: 400, wantBody: []string{"one or more of Active, Archived, Deleting, separated by commas"}},
		"list with bad sort":          {path: lists + "all?sort=title", token: "alice", want: 400, wantBody: []string{"must be one of created, updated, activity"}},
		"descendants of nothing":      {path: lists + "all?descendants=true", token: "alice", want: 400, wantBody: []string{`needs \"parentConversationID\"`}},
		"list at current version":     {path: lists + "all?resourceVersion=7", token: "alice", want: 200},
		"list at future version":      {path: lists + "all?resourceVersion=8", token: "alice", want: 503, wantBody: []string{`"retryAfterSeconds":1`, "has not seen resource version 8"}},
		"list at invalid version":     {path: lists + "all?resourceVersion=x", token: "alice", want: 400},
		"empty list":                  {path: lists + "all?userID=nobody", token: "alice", want: 200, wantBody: []string{`"name":"all"`, `"conversations":[]}`}},
		"OpenAPI v3 of lists":         {path: "/openapi/v3/apis/resolve.catena.dev/v1alpha1", token: "alice", want: 200, wantBody: []string{`"dev.catena.resolve.v1alpha1.ConversationLists"`, "or asc for the oldest"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			code, header, body := ts.get(t, tc.path, tc.token, tc.accept)
			if code != tc.want {
				t.Errorf("Unexpected code: want %d, got %d", tc.want, code)
			}
			if got := header.Get("Content-Type"); tc.wantType != "" && got != tc.wantType {
				t.Errorf("Unexpected content type: want %q, got %q", tc.wantType, got)
			}
			for _, want := range tc.wantBody {
				if !strings.Contains(body, want) {
					t.Errorf("Not in the body: %s", want)
				}
			}
			if t.Failed() {
				t.Logf("The body is:\n%.4000s", body)
			}
		})
	}
}

// TestServerAnswers pins whole answers.
func TestServerAnswers(t *testing.T) {
	ts := startServer(t, resolveStub(t))
	const asTable = "application/json;as=Table;v=v1;g=meta.k8s.io"
	all := strings.Replace(sessionVerdicts, "namespaces/team-a/", "", 1)
	allConversations := strings.Replace(conversationVerdicts, "namespaces/team-a/", "", 1)
	for name, tc := range map[string]struct{ path, accept string }{
		"verdict json":               {path: sessionVerdicts + "/resp.2"},
		"verdict table":              {path: sessionVerdicts + "/resp.2", accept: asTable},
		"verdicts json":              {path: sessionVerdicts},
		"verdicts table":             {path: all, accept: asTable},
		"verdicts first page":        {path: all + "?limit=3"},
		"verdicts last page":         {path: all + "?limit=3&continue=" + newContinue(types.NamespacedName{Namespace: "team-a", Name: "resp.9"})},
		"conversation verdict json":  {path: conversationVerdicts + "/conv.1"},
		"conversation verdict table": {path: conversationVerdicts + "/conv.1", accept: asTable},
		"conversation verdicts json": {path: allConversations},
		"conversation verdicts page": {path: allConversations + "?limit=1", accept: asTable},
		"conversation verdicts next": {
			path: allConversations + "?limit=3&continue=" + newContinue(types.NamespacedName{Namespace: "team-a", Name: "conv.2"}),
		},
		"conversation json":          {path: conversationsOf + "conv_1"},
		"conversation table":         {path: conversationsOf + "conv_1", accept: asTable},
		"conversation page":          {path: conversationsOf + "conv_1?limit=1&order=desc"},
		"conversation history":       {path: conversationsOf + "conv_1?history=true"},
		"conversation items":         {path: itemsOf + "conv_1"},
		"conversation items page":    {path: itemsOf + "conv_1?limit=2&origins=true"},
		"conversation items table":   {path: itemsOf + "conv_1", accept: asTable},
		"conversation without turns": {path: itemsOf + "conv_2"},
		"no conversation":            {path: itemsOf + "conv_9"},
		"json":                       {path: inputItems + "resp_2"},
		"table":                      {path: inputItems + "resp_2", accept: asTable},
		"page":                       {path: inputItems + "resp_2?limit=1&order=desc"},
		"not found":                  {path: inputItems + "resp_9"},
		"too deep":                   {path: inputItems + "resp_2?maxDepth=1"},
		"bad cursor":                 {path: inputItems + "resp_2?limit=1&after=x"},
		"list json":                  {path: lists + "all"},
		"list table":                 {path: lists + "all", accept: asTable},
		"list page":                  {path: lists + "all?state=Active,Archived&sort=activity&order=asc&limit=2"},
		"list descendants":           {path: lists + "all?parentConversationID=conv_2&descendants=true"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, body := ts.get(t, tc.path, "alice", tc.accept)
			age := table.ConvertToHumanReadableDateType(metav1.NewTime(created))
			golden.Check(t, "answer "+name, strings.ReplaceAll(body, `"`+age+`"`, `"AGE"`))
		})
	}
}

// TestServerDenial: a caller without the right to read gets the same answer whether a session exists or not, and no session
// is looked up.
func TestServerDenial(t *testing.T) {
	ts := startServer(t, func(context.Context, string, string, uint64, resolve.Query) (*resolve.Result, error) {
		t.Error("A session was looked up")
		return nil, nil
	})
	_, _, exists := ts.get(t, strings.Replace(inputItems, "team-a", "team-b", 1)+"resp_2", "alice", "")
	_, _, absent := ts.get(t, strings.Replace(inputItems, "team-a", "team-b", 1)+"resp_9", "alice", "")
	if diff := cmp.Diff(exists, strings.ReplaceAll(absent, "resp_9", "resp_2")); diff != "" {
		t.Errorf("The answers differ (-exists,+absent):\n%s", diff)
	}
}

// TestServerAuthorizesNames: one review covers all names of a namespace that the caller may read. A caller who may read one name may
// not read another.
func TestServerAuthorizesNames(t *testing.T) {
	ts := startServer(t, resolveStub(t))
	before := ts.kube.reviews.Load()
	for range 3 {
		for _, id := range []string{"resp_1", "resp_2", "resp_9"} {
			if code, _, body := ts.get(t, inputItems+id, "alice", ""); code == http.StatusForbidden {
				t.Errorf("%s: %s", id, body)
			}
		}
	}
	if got := ts.kube.reviews.Load() - before; got != 1 {
		t.Errorf("the reads of three names took %d reviews, want 1", got)
	}
	one := strings.Replace(inputItems, "team-a", "team-c", 1)
	if code, _, body := ts.get(t, one+"resp_1", "alice", ""); code == http.StatusForbidden {
		t.Errorf("the name that the caller may read: %s", body)
	}
	if code, _, body := ts.get(t, one+"resp_2", "alice", ""); code != http.StatusForbidden {
		t.Errorf("another name: got %d, want 403: %s", code, body)
	}
}

// TestServerWithoutKubeAPIServer: a caller that cannot be authenticated because the kube-apiserver is unreachable gets a
// Status that names the cause, not a 401.
func TestServerWithoutKubeAPIServer(t *testing.T) {
	ts := startServer(t, resolveStub(t))
	closeServer(ts.kube)
	tests := map[string]string{"authentication": "alice", "authorization": ""}
	for name, token := range tests {
		t.Run(name, func(t *testing.T) {
			code, header, body := ts.get(t, inputItems+"resp_2", token, "")
			var got metav1.Status
			if err := json.Unmarshal([]byte(body), &got); err != nil {
				t.Fatalf("The answer %d is not a Status: %s", code, body)
			}
			if code != 503 || got.Reason != metav1.StatusReasonServiceUnavailable || header.Get("Retry-After") != "1" {
				t.Errorf("Unexpected response: want 503 with a Retry-After of 1, got %d, %v, %+v", code, header, got)
			}
		})
	}
}

// TestQueriesAreNotReviewed: other selectors, and other lists, do not cause other reviews, which would be kept.
func TestQueriesAreNotReviewed(t *testing.T) {
	ts := startServer(t, resolveStub(t))
	get := func(query string, want int) {
		t.Helper()
		if code, _, body := ts.get(t, sessionVerdicts+"?"+query, "alice", ""); code != want {
			t.Errorf("%s: got %d, want %d: %s", query, code, want, body)
		}
	}
	get("", http.StatusOK)
	reviews := ts.kube.reviews.Load()
	for i := range 10 {
		get(fmt.Sprint("labelSelector=a", i), http.StatusBadRequest)
		get(fmt.Sprint("fieldSelector=metadata.name%3D", i), http.StatusOK)
		get("limit=private", http.StatusBadRequest)
	}
	get("timeout=private", http.StatusBadRequest)
	get("time%6Fut=private", http.StatusBadRequest)
	if got := ts.kube.reviews.Load(); got != reviews {
		t.Errorf("%d reviews, want no more than %d", got, reviews)
	}
}

// seenQuery is a resolver that records the query of a request.
type seenQuery string

func (q *seenQuery) NewRequestInfo(req *http.Request) (*request.RequestInfo, error) {
	*q = seenQuery(req.URL.RawQuery)
	return &request.RequestInfo{Path: req.URL.Path}, nil
}

// TestQueriesAreNotLogged: k8s.io/apiserver does not see the query where it logs what it cannot decode. (TestPathsOnly is about other lines.)
func TestQueriesAreNotLogged(t *testing.T) {
	seen := seenQuery("none")
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, sessionVerdicts+"?limit=private", http.NoBody)
	info, err := withoutQuery{&seen}.NewRequestInfo(req)
	if err != nil || seen != "" || info.Path != sessionVerdicts || req.URL.RawQuery != "limit=private" {
		t.Errorf("got %+v, %v, with the query %q: %s", info, err, seen, req.URL)
	}
}

// TestConnectionsAreNotHeld: a request for a WebSocket is refused, and a request whose body does not arrive is answered. Then the connection
// ends at once.
func TestConnectionsAreNotHeld(t *testing.T) {
	ts := startServer(t, resolveStub(t))
	const upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n"
	for name, tc := range map[string]struct {
		header string
		want   int
	}{
		"WebSocket": {
			header: upgrade + "Origin: https://localhost\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n",
			want:   http.StatusBadRequest,
		},
		"WebSocket without a key":      {header: upgrade, want: http.StatusBadRequest},
		"WebSocket with a body":        {header: upgrade + "Content-Length: 100000\r\n", want: http.StatusBadRequest},
		"body that does not arrive":    {header: "Content-Length: 100000\r\n", want: http.StatusOK},
		"body of unknown size":         {header: "Transfer-Encoding: chunked\r\n", want: http.StatusOK},
		"body that would be asked for": {header: "Content-Length: 100000\r\nExpect: 100-continue\r\n", want: http.StatusOK},
		"another protocol":             {header: "Connection: Upgrade\r\nUpgrade: h2c\r\n", want: http.StatusOK},
		"several protocols":            {header: "Connection: Upgrade\r\nUpgrade: h2c, WebSocket\r\n", want: http.StatusBadRequest},
		"body that arrives":            {header: "Content-Length: 5\r\n\r\nhello", want: http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(t.Context(), "tcp", strings.TrimPrefix(ts.url, "https://"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			if _, err := fmt.Fprintf(conn, "GET %sresp_2 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer alice\r\n%s\r\n", inputItems, tc.header); err != nil {
				t.Fatal(err)
			}
			reader := bufio.NewReader(conn)
			response, err := http.ReadResponse(reader, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != tc.want {
				t.Errorf("got %d: %v, want %d", response.StatusCode, err, tc.want)
			}
			_ = response.Body.Close()
			if err := conn.SetReadDeadline(time.Now().Add(headerTimeout)); err != nil {
				t.Fatal(err)
			}
			if _, err := reader.ReadByte(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the connection has not ended: %v", err)
			}
		})
	}
}

// TestConnectionsEnd: while the server waits for the shutdown delay, it serves requests, and no further one on the same connection.
func TestConnectionsEnd(t *testing.T) {
	ts := startServer(t, resolveStub(t))
	reused := func() (reused bool) {
		t.Helper()
		trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused }}
		req, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodGet, ts.url+"/version", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer alice")
		response, err := ts.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if err := response.Body.Close(); err != nil || response.StatusCode != http.StatusOK || response.ProtoMajor != 2 {
			t.Errorf("got %s %s: %v", response.Proto, response.Status, err)
		}
		return reused
	}
	reused()
	if !reused() {
		t.Error("the connection is not used again")
	}
	ts.stopping.Store(true) // as in the shutdown delay, which has no end here
	// The client may send one more request before it has read the GOAWAY.
	testutil.Eventually(t, func(context.Context) error {
		reused()
		if reused() {
			return errors.New("the connection is used again")
		}
		return nil
	})
}

// TestServerStops: a request in flight is finished, and the server is not ready before that.
func TestServerStops(t *testing.T) {
	arrived, proceed := make(chan struct{}), make(chan struct{})
	stub := resolveStub(t)
	ts := startServer(t, func(ctx context.Context, namespace, name string, version uint64, options resolve.Query) (*resolve.Result, error) {
		close(arrived)
		select {
		case <-proceed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		return stub(ctx, namespace, name, version, options)
	})
	code := make(chan int, 1)
	go func() {
		got, _, _ := ts.get(t, inputItems+"resp_2", "alice", "")
		code <- got
	}()
	<-arrived

	ts.stop()
	testutil.Eventually(t, func(context.Context) error {
		if ts.Ready(nil) == nil {
			return errors.New("the server is still ready")
		}
		return nil
	})
	if got, _, _ := ts.get(t, "/readyz", "", ""); got != 500 {
		t.Errorf("Unexpected readiness while stopping: want 500, got %d", got)
	}
	testutil.Eventually(t, func(context.Context) error {
		got, header, _ := ts.get(t, "/version", "alice", "")
		if got != http.StatusTooManyRequests || header.Get("Retry-After") == "" {
			return fmt.Errorf("got %d with Retry-After %q, want %d", got, header.Get("Retry-After"), http.StatusTooManyRequests)
		}
		return nil
	})
	close(proceed)
	if got := <-code; got != 200 {
		t.Errorf("Unexpected response to the request in flight: want 200, got %d", got)
	}
	if err := <-ts.done; err != nil {
		t.Errorf("Unexpected error: %v", err)
	}
}

func TestServerIsNotReadyBeforeSync(t *testing.T) {
	ts := startServerOf(t, newKubeAPIServer(t), sessions.NewView(64, time.Hour), resolveStub(t))
	if ts.Ready(nil) == nil {
		t.Error("The server is ready without its caches")
	}
	if got, _, _ := ts.get(t, "/readyz", "", ""); got != 500 {
		t.Errorf("Unexpected readiness: want 500, got %d", got)
	}
	if got, _, body := ts.get(t, sessionVerdicts, "alice", ""); got != 503 || !strings.Contains(body, "has not read the sessions yet") {
		t.Errorf("Unexpected list of verdicts: want 503, got %d: %s", got, body)
	}
}

// TestVerdictsOfAStaleView: a view that has received nothing for too long returns no verdicts.
func TestVerdictsOfAStaleView(t *testing.T) {
	kube := newKubeAPIServer(t)
	view := newView(t, kube, 100*time.Millisecond)
	closeServer(kube)
	ts := startServerOf(t, newKubeAPIServer(t), view, resolveStub(t))
	testutil.Eventually(t, func(context.Context) error {
		if got, _, body := ts.get(t, sessionVerdicts+"/resp.1", "alice", ""); got != 503 || !strings.Contains(body, "for too long") {
			return fmt.Errorf("want 503, got %d: %s", got, body)
		}
		return nil
	})
}

// TestStaleViewIsReady: staleness does not make a replica unready. All replicas would be at once, and histories do not depend on the view:
// they are confirmed with live reads.
func TestStaleViewIsReady(t *testing.T) {
	kube := newKubeAPIServer(t)
	view := newView(t, kube, 100*time.Millisecond)
	closeServer(kube)
	ts := startServerOf(t, newKubeAPIServer(t), view, resolveStub(t))
	testutil.Eventually(t, func(context.Context) error {
		if !view.IsStale() {
			return errors.New("the view is not stale yet")
		}
		return nil
	})
	if err := ts.Ready(nil); err != nil {
		t.Fatalf("the replica is not ready: %v", err)
	}
	testutil.Eventually(t, func(context.Context) error { // k8s.io/apiserver's own hooks may still be running
		if got, _, body := ts.get(t, "/readyz", "", ""); got != http.StatusOK {
			return fmt.Errorf("/readyz answers %d: %s", got, body)
		}
		return nil
	})
	if got, _, body := ts.get(t, inputItems+"resp_2", "alice", ""); got != http.StatusOK {
		t.Errorf("a history: want 200, got %d: %s", got, body)
	}
	if !view.IsStale() {
		t.Error("the view is no longer stale")
	}
}

// TestServerDeadline: a caller's timeout ends the reads made for it.
func TestServerDeadline(t *testing.T) {
	ts := startServer(t, func(ctx context.Context, _, _ string, _ uint64, _ resolve.Query) (*resolve.Result, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	code, _, body := ts.get(t, inputItems+"resp_2?timeout=4s", "alice", "")
	if code != 504 || !strings.Contains(body, `"reason":"Timeout"`) {
		t.Errorf("Unexpected answer: want 504, got %d: %s", code, body)
	}
}
