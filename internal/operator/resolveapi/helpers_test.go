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
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/history"
	"github.com/catena-dev/catena/internal/operator/resolve"
)

// inHandler returns a context as handlers have it, until ctx is done.
func inHandler(ctx context.Context) context.Context {
	inside := make(chan context.Context)
	go withHandled(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		inside <- req.Context()
		<-ctx.Done()
	})).ServeHTTP(nil, (&http.Request{}).WithContext(ctx))
	return <-inside
}

const testUID = "0c3f2b1e-6f0a-4a35-9a53-7d0f6f6f0001"

// makeHistory returns a history of turns resp_1, resp_2 and so on.
func makeHistory(turns ...*chain.Items) *resolve.Result {
	h := &resolve.Result{UID: testUID}
	for i, items := range turns {
		h.Turns = append(h.Turns, history.TurnItems{ResponseID: fmt.Sprintf("resp_%d", i+1), Items: items})
		h.ResponseID = h.Turns[i].ResponseID
		h.Name = strings.ReplaceAll(h.ResponseID, "_", ".")
	}
	return h
}
