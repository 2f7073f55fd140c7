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

package silence

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/internal/kubeclient"
)

// TestDrip: a response of which a proxy keeps sending a few bytes ends with an error, although it is never silent.
func TestDrip(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for err := error(nil); err == nil && r.Context().Err() == nil; {
			_, err = fmt.Fprintln(w)
			_ = http.NewResponseController(w).Flush()
		}
	}))
	defer server.Close()
	client, err := kubeclient.New(limit(&rest.Config{Host: server.URL}, time.Hour, 100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	response, err := kubeclient.ListRequest(client, kubeclient.Sessions, &metav1.ListOptions{}).Stream(t.Context())
	if err == nil { // on a loaded machine, even the headers can arrive too late
		_, err = io.Copy(io.Discard, response)
		_ = response.Close()
	}
	if !errors.Is(err, ErrEndless) {
		t.Errorf("got %v, want ErrEndless", err)
	}
}

// TestAge: the age counts from the beginning of the watch, so that it shows a first list that never completes.
func TestAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		age := NewAge(kubeclient.Sessions)
		if n := testutil.CollectAndCount(age); n != 0 {
			t.Errorf("got %d metrics before the watch began", n)
		}
		check := func(want time.Duration) {
			t.Helper()
			time.Sleep(want) //nolint:forbidigo // on the bubble's clock
			if got := testutil.ToFloat64(age); got != want.Seconds() || age.Get() != want {
				t.Errorf("the age is %s and the metric %v, want %s", age.Get(), got, want)
			}
		}
		age.Start()
		check(time.Hour)
		age.Received()
		check(time.Second)
	})
}
