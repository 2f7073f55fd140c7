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

package adk_test

import (
	"context"
	"fmt"
	"log"

	"google.golang.org/adk/v2/session"

	"github.com/catena-dev/catena/adapters/adk"
	"github.com/catena-dev/catena/store"
	_ "github.com/catena-dev/catena/store/memory"
)

func Example() {
	ctx := context.Background()
	turns, err := store.Open(ctx, "memory:") // in a cluster: "kube:", with store/kube imported
	if err != nil {
		log.Fatal(err)
	}
	defer turns.Close()
	sessions := adk.NewService(turns) // for runner.Config.SessionService

	created, err := sessions.Create(ctx, &session.CreateRequest{AppName: "helpdesk", UserID: "alice", SessionID: "monday"})
	if err != nil {
		log.Fatal(err)
	}
	event := session.NewEvent(ctx, "invocation-1")
	event.Author = "user"
	event.Actions.StateDelta = map[string]any{"ticket": "4711", "user:language": "en"}
	if err := sessions.AppendEvent(ctx, created.Session, event); err != nil {
		log.Fatal(err)
	}

	// Another replica gets the session with its event, and Alice's next session has her language.
	got, err := sessions.Get(ctx, &session.GetRequest{AppName: "helpdesk", UserID: "alice", SessionID: "monday"})
	if err != nil {
		log.Fatal(err)
	}
	ticket, err := got.Session.State().Get("ticket")
	fmt.Println(got.Session.Events().Len(), ticket, err)
	next, err := sessions.Create(ctx, &session.CreateRequest{AppName: "helpdesk", UserID: "alice"})
	if err != nil {
		log.Fatal(err)
	}
	language, err := next.Session.State().Get("user:language")
	fmt.Println(next.Session.Events().Len(), language, err)
	// Output:
	// 1 4711 <nil>
	// 0 en <nil>
}
