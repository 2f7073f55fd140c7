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

package kubeclient

import (
	"cmp"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// serve returns a client of an API server with a handler.
func serve(t *testing.T, handler http.HandlerFunc) rest.Interface {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	client, err := New(&rest.Config{Host: server.URL, BearerToken: "token"})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// TestNow: the time is that of the API server, not of this machine.
func TestNow(t *testing.T) {
	for name, tc := range map[string]struct {
		date    string
		status  int // 200 if it is 0
		want    time.Time
		wantErr bool
	}{
		"another year": {date: "Fri, 20 Nov 2020 10:00:00 GMT", want: time.Date(2020, 11, 20, 10, 0, 0, 0, time.UTC)},
		"no date":      {date: "", wantErr: true},
		"bad gateway":  {date: "Fri, 20 Nov 2020 10:00:00 GMT", status: http.StatusBadGateway, wantErr: true},
	} {
		t.Run(name, func(t *testing.T) {
			client := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") != "Bearer token" {
					t.Error("the request has no credentials")
				}
				w.Header()["Date"] = []string{tc.date}
				w.WriteHeader(cmp.Or(tc.status, http.StatusOK))
			})
			got, err := Now(t.Context(), client)
			if !got.Equal(tc.want) || (err != nil) != tc.wantErr {
				t.Errorf("got %v and %v, want %v", got, err, tc.want)
			}
		})
	}
}
