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

package gateway

import (
	"errors"
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
	"github.com/tidwall/gjson"

	"github.com/catena-dev/catena/store"
)

// sdk is the responses part of OpenAI's own client, connected to a gateway. The whole client would take longer to compile than
// any other package in this repository's programs and tests.
type sdk struct {
	*fixture
	client responses.ResponseService
}

func startSDK(t *testing.T) *sdk {
	t.Helper()
	f := start(t, nil)
	return &sdk{fixture: f, client: responses.NewResponseService(option.WithBaseURL(f.url+"/v1"), option.WithAPIKey("sk-a"), option.WithMaxRetries(0))}
}

func params(input, previous string) responses.ResponseNewParams {
	p := responses.ResponseNewParams{
		Model: "scripted",
		Input: responses.ResponseNewParamsInputUnion{OfString: param.NewOpt(input)},
	}
	if previous != "" {
		p.PreviousResponseID = param.NewOpt(previous)
	}
	return p
}

func (s *sdk) say(input, previous string) *responses.Response {
	s.t.Helper()
	response, err := s.client.New(s.t.Context(), params(input, previous))
	if err != nil {
		s.t.Fatal(err)
	}
	if response.PreviousResponseID != previous || response.Status != "completed" {
		s.t.Errorf("previous response %q, want %q, status %s", response.PreviousResponseID, previous, response.Status)
	}
	return response
}

func (s *sdk) wantError(err error, wantStatus int, wantCode string) {
	s.t.Helper()
	e, ok := errors.AsType[*responses.Error](err)
	if !ok || e.StatusCode != wantStatus || e.Code != wantCode {
		s.t.Errorf("got %v, want %d %s", err, wantStatus, wantCode)
	}
}

func TestOpenAIConversation(t *testing.T) {
	s := startSDK(t)
	first := s.say("one", "")
	second := s.say("two", first.ID)
	third := s.say("three", second.ID)
	fork := s.say("fork", first.ID)
	for _, tc := range []struct {
		response *responses.Response
		want     string
	}{
		{first, "You said 1 things, from 'one' to 'one'."},
		{third, "You said 3 things, from 'one' to 'three'."},
		{fork, "You said 2 things, from 'one' to 'fork'."},
	} {
		if got := tc.response.OutputText(); got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}

	retrieved, err := s.client.Get(t.Context(), second.ID, responses.ResponseGetParams{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(second.RawJSON(), retrieved.RawJSON()); diff != "" {
		t.Errorf("retrieved (-created +retrieved):\n%s", diff)
	}

	if err := s.client.Delete(t.Context(), second.ID); err != nil {
		t.Fatal(err)
	}
	_, err = s.client.Get(t.Context(), second.ID, responses.ResponseGetParams{})
	s.wantError(err, http.StatusNotFound, "")
	_, err = s.client.New(t.Context(), params("four", second.ID))
	s.wantError(err, http.StatusBadRequest, "previous_response_not_found")
	_, err = s.client.New(t.Context(), params("four", third.ID))
	s.wantError(err, http.StatusBadRequest, string(store.CodeNotFound))
	s.say("the fork goes on", fork.ID)
}

func TestOpenAIStream(t *testing.T) {
	s := startSDK(t)
	first := s.say("one", "")
	stream := s.client.NewStreaming(t.Context(), params("two", first.ID))
	text := ""
	var sequence []int64
	var last *responses.Response
	for stream.Next() {
		event := stream.Current()
		sequence = append(sequence, event.SequenceNumber)
		switch event := event.AsAny().(type) {
		case responses.ResponseTextDeltaEvent:
			text += event.Delta
		case responses.ResponseCompletedEvent:
			last = &event.Response
		}
	}
	if err := stream.Err(); err != nil || last == nil {
		t.Fatalf("the stream ended with %v", err)
	}
	want := "You said 2 things, from 'one' to 'two'."
	if text != want || last.OutputText() != want {
		t.Errorf("text %q, response %q, want %q", text, last.OutputText(), want)
	}
	if !slices.IsSorted(sequence) || len(sequence) < 10 {
		t.Errorf("got the sequence numbers %v, want at least 10 in ascending order", sequence)
	}
	if got, want := s.say("three", last.ID).OutputText(), "You said 3 things, from 'one' to 'three'."; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestOpenAIStreamFails(t *testing.T) {
	f := start(t, streamHandler(sse(created)))
	client := responses.NewResponseService(option.WithBaseURL(f.url+"/v1"), option.WithAPIKey("sk-a"), option.WithMaxRetries(0))
	stream := client.NewStreaming(t.Context(), params("one", ""))
	var last responses.ResponseStreamEventUnion
	for stream.Next() {
		last = stream.Current()
	}
	failed, ok := last.AsAny().(responses.ResponseFailedEvent)
	if !ok || stream.Err() != nil || failed.Response.Error.Code != responses.ResponseErrorCodeServerError {
		t.Errorf("the stream ended with %s and error %v, want response.failed with server_error", last.RawJSON(), stream.Err())
	}
}

func TestOpenAIInputItems(t *testing.T) {
	s := startSDK(t)
	first := s.say("one", "")
	second := s.say("two", first.ID)
	third := s.say("three", second.ID)
	for order, want := range map[responses.InputItemListParamsOrder][]string{
		"asc":  {"one", first.OutputText(), "two", second.OutputText(), "three"},
		"desc": {"three", second.OutputText(), "two", first.OutputText(), "one"},
		"":     {"three", second.OutputText(), "two", first.OutputText(), "one"},
	} {
		pager := s.client.InputItems.ListAutoPaging(t.Context(), third.ID,
			responses.InputItemListParams{Limit: param.NewOpt(int64(2)), Order: order})
		var got []string
		for pager.Next() {
			item := pager.Current()
			if item.ID == "" {
				t.Errorf("item without an ID: %s", item.RawJSON())
			}
			got = append(got, gjson.Get(item.RawJSON(), "content.0.text").Str)
		}
		if diff := cmp.Diff(want, got); diff != "" || pager.Err() != nil {
			t.Errorf("order %q: %v, items (-want +got):\n%s", order, pager.Err(), diff)
		}
	}
}

func TestOpenAIToolAndModels(t *testing.T) {
	s := startSDK(t)
	asked := s.say(`call weather {"city":"Bonn"}`, "")
	call := asked.Output[0].AsFunctionCall()
	if call.Name != "weather" || call.Arguments != `{"city":"Bonn"}` {
		t.Fatalf("got no function call: %s", call.RawJSON())
	}
	output := responses.ResponseInputItemParamOfFunctionCallOutput("rain")
	output.OfFunctionCallOutput.CallID = param.NewOpt(call.CallID)
	p := params("", asked.ID)
	p.Input = responses.ResponseNewParamsInputUnion{OfInputItemList: responses.ResponseInputParam{output}}
	answer, err := s.client.New(t.Context(), p)
	if err != nil || answer.OutputText() != "The function answered: rain" {
		t.Fatalf("got %v, %v", answer, err)
	}
	if got, want := s.say("Thanks", answer.ID).OutputText(), `You said 2 things, from 'call weather {"city":"Bonn"}' to 'Thanks'.`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if models := s.do(http.MethodGet, "/v1/models", ""); models.get("data.#") != "1" || models.get("data.0.id") != "scripted" {
		t.Errorf("got models %s, want only the scripted one", models.body)
	}
}
