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
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/catena-dev/catena/catenatest"
	"github.com/catena-dev/catena/store"

	gateway "example.com/gateway"
)

var env *catenatest.Environment

func TestMain(m *testing.M) { os.Exit(catenatest.Main(m, &env, catenatest.Options{})) }

// countingEngine answers with the number of items that it receives.
func countingEngine() gateway.Engine {
	calls := 0
	return func(_ context.Context, input []json.RawMessage) (string, json.RawMessage, error) {
		calls++
		text := fmt.Sprintf("I was given %d items.", len(input))
		output := fmt.Appendf(nil, `[{"type":"message","role":"assistant","content":[{"type":"output_text","text":%q}]}]`, text)
		return fmt.Sprintf("resp_%d", calls), output, nil
	}
}

func TestConversation(t *testing.T) {
	turns := env.Store.InNamespace(env.Namespace(t))
	g := &gateway.Gateway{Turns: turns, Engine: countingEngine()}
	first, err := g.Respond(t.Context(), "", "My name is Ada.")
	if err != nil {
		t.Fatal(err)
	}
	second, err := g.Respond(t.Context(), first, "Who am I?")
	if err != nil {
		t.Fatal(err)
	}
	history, err := turns.Resolve(t.Context(), second, store.ResolveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(history.Turns) != 2 || len(history.Items) != 4 {
		t.Errorf("got %d turns with %d items, want 2 with 4", len(history.Turns), len(history.Items))
	}
}

func TestUnknownResponse(t *testing.T) {
	g := &gateway.Gateway{Turns: env.Store.InNamespace(env.Namespace(t)), Engine: countingEngine()}
	if _, err := g.Respond(t.Context(), "resp_unknown", "Who am I?"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("got %v, want ErrNotFound", err)
	}
}
