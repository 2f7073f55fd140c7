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

package gateway_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/gateway/enginetest"
	"github.com/catena-dev/catena/internal/testenv"
	"github.com/catena-dev/catena/internal/testutil"
)

// imageBytes is the size of the image that a user sends. It cannot be compressed.
const imageBytes = 3 << 20

// sdk is the Responses service of OpenAI's client for Go, without retries. The whole client takes a minute to compile.
type sdk struct {
	t *testing.T
	responses.ResponseService
}

func newSDK(t *testing.T) *sdk {
	return &sdk{t, responses.NewResponseService(option.WithBaseURL(alternating+"/v1"), option.WithAPIKey("none"), option.WithMaxRetries(0))}
}

func params(previous string, items ...responses.ResponseInputItemUnionParam) responses.ResponseNewParams {
	p := responses.ResponseNewParams{
		Model: enginetest.Model,
		Input: responses.ResponseNewParamsInputUnion{OfInputItemList: items},
	}
	if previous != "" {
		p.PreviousResponseID = param.NewOpt(previous)
	}
	return p
}

func user(content string) responses.ResponseInputItemUnionParam {
	return responses.ResponseInputItemParamOfMessage(content, responses.EasyInputMessageRoleUser)
}

// create creates a response and checks that it is completed.
func (s *sdk) create(previous string, items ...responses.ResponseInputItemUnionParam) *responses.Response {
	s.t.Helper()
	response, err := s.New(s.t.Context(), params(previous, items...))
	if err != nil {
		s.t.Fatal(err)
	}
	if response.PreviousResponseID != previous || response.Status != "completed" {
		s.t.Errorf("previous response %q, want %q, status %s", response.PreviousResponseID, previous, response.Status)
	}
	return response
}

// wantText fails the test if the text of a response differs.
func (s *sdk) wantText(response *responses.Response, format string, args ...any) {
	s.t.Helper()
	if got, want := response.OutputText(), fmt.Sprintf(format, args...); got != want {
		s.t.Errorf("got %q, want %q", got, want)
	}
}

// wantError waits until a call fails as expected: a deleted turn may still be read for a moment.
func (s *sdk) wantError(status int, code string, call func(context.Context) error) {
	s.t.Helper()
	testutil.Eventually(s.t, func(ctx context.Context) error {
		err := call(ctx)
		if e, ok := errors.AsType[*responses.Error](err); ok && e.StatusCode == status && e.Code == code {
			return nil
		}
		return fmt.Errorf("got %w, want %d %s", err, status, code)
	})
}

// inputItems lists the input items of a response, a few per page.
func (s *sdk) inputItems(id string, order responses.InputItemListParamsOrder) []responses.ResponseItemUnion {
	s.t.Helper()
	pager := s.InputItems.ListAutoPaging(s.t.Context(), id, responses.InputItemListParams{Limit: param.NewOpt(int64(2)), Order: order})
	var items []responses.ResponseItemUnion
	for pager.Next() {
		items = append(items, pager.Current())
	}
	if err := pager.Err(); err != nil {
		s.t.Fatal(err)
	}
	return items
}

func TestConversation(t *testing.T) {
	s := newSDK(t)
	first := s.create("", user("one"))
	second := s.create(first.ID, user("two"))
	third := s.create(second.ID, user("three"))
	fork := s.create(first.ID, user("fork"))
	s.wantText(first, "You said 1 things, from 'one' to 'one'.")
	s.wantText(third, "You said 3 things, from 'one' to 'three'.")
	s.wantText(fork, "You said 2 things, from 'one' to 'fork'.")

	for range replicas {
		retrieved, err := s.Get(t.Context(), second.ID, responses.ResponseGetParams{})
		if err != nil {
			t.Fatal(err)
		}
		equalJSON(t, second.RawJSON(), retrieved.RawJSON())
	}

	if err := s.Delete(t.Context(), second.ID); err != nil {
		t.Fatal(err)
	}
	s.wantError(http.StatusNotFound, "", func(ctx context.Context) error {
		_, err := s.Get(ctx, second.ID, responses.ResponseGetParams{})
		return err
	})
	for previous, code := range map[string]string{second.ID: "previous_response_not_found", third.ID: "session.chain.not_found"} {
		s.wantError(http.StatusBadRequest, code, func(ctx context.Context) error {
			_, err := s.New(ctx, params(previous, user("four")))
			return err
		})
	}
	s.wantText(s.create(fork.ID, user("on")), "You said 3 things, from 'one' to 'on'.")
}

func TestStream(t *testing.T) {
	s := newSDK(t)
	previous := ""
	for i, input := range []string{"one", "two", "three"} {
		text, response, err := stream(t.Context(), &s.ResponseService, params(previous, user(input)))
		if err != nil {
			t.Fatal(err)
		}
		s.wantText(response, "You said %d things, from 'one' to '%s'.", i+1, input)
		if text != response.OutputText() {
			t.Errorf("the deltas add up to %q, the response has %q", text, response.OutputText())
		}
		previous = response.ID
	}
}

// stream creates a response, and returns the text of its deltas and the completed response.
func stream(ctx context.Context, c *responses.ResponseService, p responses.ResponseNewParams, options ...option.RequestOption) (string, *responses.Response, error) {
	events := c.NewStreaming(ctx, p, options...)
	text := ""
	for events.Next() {
		switch event := events.Current().AsAny().(type) {
		case responses.ResponseTextDeltaEvent:
			text += event.Delta
		case responses.ResponseCompletedEvent:
			return text, &event.Response, events.Close()
		}
	}
	return "", nil, errors.Join(errors.New("the stream has ended without response.completed"), events.Err())
}

func TestInputItems(t *testing.T) {
	s := newSDK(t)
	first := s.create("", user("one"))
	second := s.create(first.ID, user("two"))
	third := s.create(second.ID, user("three"), user("four"))
	for order, want := range map[responses.InputItemListParamsOrder][]string{
		"asc":  {"one", first.OutputText(), "two", second.OutputText(), "three", "four"},
		"desc": {"four", "three", second.OutputText(), "two", first.OutputText(), "one"},
	} {
		var got []string
		for _, item := range s.inputItems(third.ID, order) {
			text := gjson.Get(item.RawJSON(), "content")
			if text.IsArray() {
				text = text.Get("0.text")
			}
			got = append(got, text.Str)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("order %s (-want +got):\n%s", order, diff)
		}
	}
}

func TestToolCall(t *testing.T) {
	s := newSDK(t)
	asked := s.create("", user(`call weather {"city":"Bonn"}`))
	call := asked.Output[0].AsFunctionCall()
	if call.Name != "weather" || call.Arguments != `{"city":"Bonn"}` {
		t.Fatalf("unexpected call: %s", call.RawJSON())
	}
	output := responses.ResponseInputItemParamOfFunctionCallOutput("rain")
	output.OfFunctionCallOutput.CallID = param.NewOpt(call.CallID)
	answered := s.create(asked.ID, output)
	s.wantText(answered, "The function answered: rain")
	thanked := s.create(answered.ID, user("Thanks"))
	s.wantText(thanked, `You said 2 things, from 'call weather {"city":"Bonn"}' to 'Thanks'.`)
	items := s.inputItems(thanked.ID, "asc")
	if len(items) != 5 || items[1].CallID != call.CallID || items[2].CallID != call.CallID || items[2].Type != "function_call_output" {
		t.Errorf("items %v", items)
	}
}

// createWithImage creates a response to a request with an image, and returns it with the image's URL.
func (s *sdk) createWithImage() (*responses.Response, string) {
	s.t.Helper()
	image := make([]byte, imageBytes)
	_, _ = rand.Read(image) // never fails
	data := "data:image/png;base64," + base64.StdEncoding.EncodeToString(image)
	return s.create("", responses.ResponseInputItemParamOfInputMessage(responses.ResponseInputMessageContentListParam{
		responses.ResponseInputContentParamOfInputText("What is this?"),
		{OfInputImage: &responses.ResponseInputImageParam{ImageURL: param.NewOpt(data), Detail: responses.ResponseInputImageDetailAuto}},
	}, "user")), data
}

// checkImage continues a response with an image through the replicas, and returns the location of the snapshot.
func checkImage(t *testing.T, created *responses.Response, data, snapshotStore string) *v1alpha1.SnapshotReference {
	t.Helper()
	s := newSDK(t)
	next := s.create(created.ID, user("Are you sure?"))
	s.wantText(next, "You said 2 things, from 'What is this?' to 'Are you sure?'.")
	items := s.inputItems(next.ID, "asc")
	if len(items) != 3 || gjson.Get(items[0].RawJSON(), "content.1.image_url").Str != data {
		t.Errorf("%d items, want 3, or the image differs from the one that was sent", len(items))
	}
	session := &v1alpha1.ResponseSession{}
	key := client.ObjectKey{Namespace: "default", Name: v1alpha1.ObjectName(created.ID)}
	if err := env.Client.Get(t.Context(), key, session); err != nil {
		t.Fatal(err)
	}
	snapshot := session.Spec.Snapshot
	if snapshot == nil || snapshot.Store != snapshotStore || snapshot.SizeBytes < imageBytes {
		t.Fatalf("the turn is stored as %+v", snapshot)
	}
	return snapshot
}

func TestImage(t *testing.T) {
	s := newSDK(t)
	created, data := s.createWithImage()
	stored := checkImage(t, created, data, v1alpha1.SnapshotStoreChunks)
	if err := s.Delete(t.Context(), created.ID); err != nil {
		t.Fatal(err)
	}
	chunk := client.ObjectKey{Namespace: "default", Name: v1alpha1.SnapshotChunkName(stored.Key, 0)}
	if err := env.Client.Get(t.Context(), chunk, &v1alpha1.SnapshotChunk{}); !apierrors.IsNotFound(err) {
		t.Errorf("get the deleted turn's chunk: %v, want NotFound", err)
	}
}

// TestImageInBucket checks that gateways without a bucket continue a turn that another one has stored in a bucket.
func TestImageInBucket(t *testing.T) {
	store := testenv.StoreURL("default", env.Kubeconfig) + "&snapshot-store=" + url.QueryEscape(bucket)
	writer, err := env.StartGateway(t.Context(), testenv.GatewayOptions{Upstream: engineURL, Race: true, Args: []string{"--store=" + store}})
	if err != nil {
		t.Fatal(err)
	}
	s := newSDK(t)
	s.ResponseService = responses.NewResponseService(option.WithBaseURL(writer.URL+"/v1"), option.WithAPIKey("none"), option.WithMaxRetries(0))
	created, data := s.createWithImage()
	retrieved, err := s.Get(t.Context(), created.ID, responses.ResponseGetParams{})
	if err != nil {
		t.Fatal(err)
	}
	equalJSON(t, created.RawJSON(), retrieved.RawJSON())
	checkImage(t, created, data, v1alpha1.SnapshotStoreBlob)
	if err := writer.Stop(); err != nil {
		t.Error(err)
	}
}
