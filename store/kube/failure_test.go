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

package kube_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	_ "gocloud.dev/blob/s3blob" // s3://
	"golang.org/x/net/http2"
	"k8s.io/client-go/rest"

	resolvev1alpha1 "github.com/catena-dev/catena/api/resolve/v1alpha1"
	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/kube"
)

// TestSaveAgain: a failed save is repeated if that can help, even if the first attempt had succeeded.
func TestSaveAgain(t *testing.T) {
	refused := func(http.RoundTripper, *http.Request) (*http.Response, error) { return nil, syscall.ECONNREFUSED }
	for name, tc := range map[string]struct {
		fail     func(next http.RoundTripper, r *http.Request) (*http.Response, error)
		failures int32
		// wantWrites is the number of write requests.
		wantWrites int32
		wantErr    bool
	}{
		"connection refused": {refused, 2, 3, false},
		"response lost":      {loseResponse, 1, 1, false},
		"overloaded":         {overloaded, 2, 3, false},
		"forbidden": {func(_ http.RoundTripper, r *http.Request) (*http.Response, error) {
			return answer(r, http.StatusForbidden), nil
		}, 1, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			var writes atomic.Int32
			s := openThrough(t, open(t, kube.Options{}).Namespace(), func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
				if r.Method != http.MethodGet && writes.Add(1) <= tc.failures {
					return tc.fail(next, r)
				}
				return next.RoundTrip(r)
			})
			err := s.Save(t.Context(), testturn.Make("resp_1", ""), store.SaveOptions{})
			if (err != nil) != tc.wantErr {
				t.Errorf("got %v", err)
			}
			if writes.Load() != tc.wantWrites {
				t.Errorf("%d writes, want %d", writes.Load(), tc.wantWrites)
			}
			if _, err := s.Get(t.Context(), "resp_1"); (err != nil) != tc.wantErr {
				t.Errorf("Get returned %v", err)
			}
		})
	}
}

// TestSaveGivesUp: a save gives up after some attempts.
func TestSaveGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts := 0
		s, err := kube.Open(t.Context(), kube.Options{Namespace: "a", Config: &rest.Config{
			Host: "https://localhost:1", QPS: -1,
			Transport: transport(func(*http.Request) (*http.Response, error) {
				attempts++
				return nil, syscall.ECONNREFUSED
			}),
		}})
		if err != nil {
			t.Fatal(err)
		}
		err = s.Save(t.Context(), testturn.Make("resp_1", ""), store.SaveOptions{})
		if !errors.Is(err, store.ErrUnreachable) || !store.IsRetryable(err) {
			t.Errorf("got %v, want ErrUnreachable", err)
		}
		if attempts != 7 {
			t.Errorf("%d attempts, want 7", attempts)
		}
	})
}

// TestDeleteGivesUp: a delete gives up if garbage collection does not work.
func TestDeleteGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deletes := 0
		s, err := kube.Open(t.Context(), kube.Options{Namespace: "a", Config: &rest.Config{
			Host: "https://localhost:1", QPS: -1,
			Transport: transport(func(r *http.Request) (*http.Response, error) {
				kind, version := "PartialObjectMetadata", "meta.k8s.io/v1"
				if r.Method == http.MethodDelete {
					kind, version = v1alpha1.ResponseSessionKind, v1alpha1.GroupVersion.String()
					deletes++
				}
				response := answer(r, http.StatusOK)
				response.Header.Set("Content-Type", "application/json")
				response.Body = io.NopCloser(strings.NewReader(
					`{"apiVersion":"` + version + `","kind":"` + kind + `","metadata":{"name":"resp.1","uid":"1","deletionTimestamp":"2026-01-01T00:00:00Z"}}`))
				return response, nil
			}),
		}})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		err = s.Delete(t.Context(), "resp_1", store.DeleteOptions{})
		if !errors.Is(err, store.ErrUnreachable) || !store.IsRetryable(err) {
			t.Errorf("got %v, want ErrUnreachable", err)
		}
		if took := time.Since(start); took != 30*time.Second || deletes != 1 {
			t.Errorf("it took %s and %d deletes, want 30s and 1", took, deletes)
		}
	})
}

// TestUnauthorized: credentials that are not accepted may be replaced a moment later, or be those of a Pod that was deleted.
func TestUnauthorized(t *testing.T) {
	const notFound = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,
		"details":{"name":"resp.1","group":"sessions.catena.dev","kind":"responsesessions"}}`
	for refusals, want := range map[int]error{1: store.ErrNotFound, 100: store.ErrUnreachable} {
		synctest.Test(t, func(t *testing.T) {
			attempts := 0
			s, err := kube.Open(t.Context(), kube.Options{Namespace: "a", Config: &rest.Config{
				Host: "https://localhost:1", QPS: -1,
				Transport: transport(func(r *http.Request) (*http.Response, error) {
					if attempts++; attempts <= refusals {
						return answer(r, http.StatusUnauthorized), nil
					}
					response := answer(r, http.StatusNotFound)
					response.Header.Set("Content-Type", "application/json")
					response.Body = io.NopCloser(strings.NewReader(notFound))
					return response, nil
				}),
			}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Get(t.Context(), "resp_1"); !errors.Is(err, want) {
				t.Errorf("after %d refusals: got %v, want %v", refusals, err, want)
			}
		})
	}
}

// TestDeadlineBetweenAttempts: the error contains the context's error and the error of the last attempt.
func TestDeadlineBetweenAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := kube.Open(t.Context(), kube.Options{Namespace: "a", Config: &rest.Config{
			Host: "https://localhost:1", QPS: -1,
			Transport: transport(func(*http.Request) (*http.Response, error) { return nil, syscall.ECONNREFUSED }),
		}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = s.Get(ctx, "resp_1")
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, store.ErrUnreachable) {
			t.Errorf("got %v", err)
		}
	})
}

// TestRetryAfter: a server that sends Retry-After gets only client-go's retries, and few of them for requests that read a
// whole chain again.
func TestRetryAfter(t *testing.T) {
	get := func(t *testing.T, s *store.Store) error {
		_, err := s.Get(t.Context(), "resp_1")
		return err
	}
	resolve := func(t *testing.T, s *store.Store) error {
		_, err := s.Resolve(t.Context(), "resp_1", store.ResolveOptions{})
		return err
	}
	cases := map[string]struct {
		call         func(t *testing.T, s *store.Store) error
		status       int
		wantAttempts int
	}{
		"get, 429":     {get, http.StatusTooManyRequests, 11},
		"resolve, 429": {resolve, http.StatusTooManyRequests, 2},
		"resolve, 504": {resolve, http.StatusGatewayTimeout, 2},
		"resolve, 503": {resolve, http.StatusServiceUnavailable, 14}, // seven attempts of the store
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				attempts := 0
				s, err := kube.Open(t.Context(), kube.Options{Namespace: "a", Config: &rest.Config{
					Host: "https://localhost:1", QPS: -1,
					Transport: transport(func(r *http.Request) (*http.Response, error) {
						attempts++
						response := answer(r, tc.status)
						response.Header.Set("Retry-After", "1")
						return response, nil
					}),
				}})
				if err != nil {
					t.Fatal(err)
				}
				if err := tc.call(t, s); !errors.Is(err, store.ErrUnreachable) || !store.IsRetryable(err) {
					t.Errorf("got %v, want ErrUnreachable", err)
				}
				if attempts != tc.wantAttempts {
					t.Errorf("%d attempts, want %d", attempts, tc.wantAttempts)
				}
			})
		})
	}
}

// TestFailedWalkIsNotRepeated: a resolve is not repeated if the operator has begun to read the chain and failed.
func TestFailedWalkIsNotRepeated(t *testing.T) {
	for reason, code := range map[string]int{"ServiceUnavailable": http.StatusServiceUnavailable, "Timeout": http.StatusGatewayTimeout} {
		t.Run(reason, func(t *testing.T) {
			status := fmt.Sprintf(`{"apiVersion":"v1","kind":"Status","status":"Failure","code":%d,"reason":%q,"details":{"causes":[{"reason":%q}]}}`,
				code, reason, resolvev1alpha1.CauseReadFailed)
			attempts := 0
			s, err := kube.Open(t.Context(), kube.Options{Namespace: "a", Config: &rest.Config{
				Host: "https://localhost:1", QPS: -1,
				Transport: transport(func(r *http.Request) (*http.Response, error) {
					attempts++
					response := answer(r, code)
					response.Header.Set("Content-Type", "application/json")
					response.Body = io.NopCloser(strings.NewReader(status))
					return response, nil
				}),
			}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Resolve(t.Context(), "resp_1", store.ResolveOptions{}); !errors.Is(err, store.ErrUnreachable) || !store.IsRetryable(err) {
				t.Errorf("got %v, want ErrUnreachable", err)
			}
			if attempts != 1 {
				t.Errorf("%d attempts, want 1", attempts)
			}
		})
	}
}

// TestOtherCallsAreRetried: Get, Resolve and Delete are repeated too.
func TestOtherCallsAreRetried(t *testing.T) {
	var failures atomic.Int32
	s := openThrough(t, open(t, kube.Options{}).Namespace(), func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		if failures.Add(-1) >= 0 {
			return answer(r, http.StatusServiceUnavailable), nil
		}
		return next.RoundTrip(r)
	})
	save(t, s, testturn.Make("resp_1", ""))
	failures.Store(2)
	if _, err := s.Get(t.Context(), "resp_1"); err != nil {
		t.Error(err)
	}
	failures.Store(2)
	if _, err := s.Resolve(t.Context(), "resp_1", store.ResolveOptions{}); err != nil {
		t.Error(err)
	}
	failures.Store(2)
	if err := s.Delete(t.Context(), "resp_1", store.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

// TestTruncatedResponse: a request whose response is cut off, for example because the server is killed, is repeated.
func TestTruncatedResponse(t *testing.T) {
	for name, cut := range map[string]error{
		"HTTP/1": io.ErrUnexpectedEOF,
		"HTTP/2": http2.StreamError{StreamID: 1, Code: http2.ErrCodeInternal},
	} {
		t.Run(name, func(t *testing.T) {
			var failures atomic.Int32
			s := openThrough(t, open(t, kube.Options{}).Namespace(), func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
				response, err := next.RoundTrip(r)
				if err == nil && failures.Add(-1) >= 0 {
					_ = response.Body.Close()
					response.Body = io.NopCloser(io.MultiReader(strings.NewReader("{"), iotest.ErrReader(cut)))
				}
				return response, err
			})
			failures.Store(1)
			save(t, s, testturn.Make("resp_1", ""))
			failures.Store(1)
			if _, err := s.Resolve(t.Context(), "resp_1", store.ResolveOptions{}); err != nil {
				t.Error(err)
			}
			failures.Store(1)
			if _, err := s.Get(t.Context(), "resp_1"); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestUntrustedServer: an untrusted certificate is not retryable.
func TestUntrustedServer(t *testing.T) {
	config := rest.CopyConfig(env.Config)
	config.CAData, config.CAFile = nil, env.ResolveCAFile
	s, err := kube.Open(t.Context(), kube.Options{Config: config, Namespace: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Save(t.Context(), testturn.Make("resp_1", ""), store.SaveOptions{}); err == nil || store.IsRetryable(err) {
		t.Errorf("got %v, want an error that is not retryable", err)
	}
}

// TestBucketFails: an overloaded bucket gets three requests, and one that rejects requests gets one.
func TestBucketFails(t *testing.T) {
	for status, tc := range map[int]struct {
		wantRequests  int32
		wantRetryable bool
	}{
		http.StatusServiceUnavailable: {3, true},
		http.StatusForbidden:          {1, false},
	} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			var requests atomic.Int32
			bucket := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				requests.Add(1)
				w.WriteHeader(status)
			}))
			defer bucket.Close()
			s := open(t, kube.Options{
				InlineBytes:   -1,
				SnapshotStore: "s3://snapshots?anonymous=true&region=us-east-1&use_path_style=true&endpoint=" + bucket.URL,
			})
			err := s.Save(t.Context(), testturn.Make("resp_1", ""), store.SaveOptions{})
			if err == nil || errors.Is(err, store.ErrUnreachable) != tc.wantRetryable || store.IsRetryable(err) != tc.wantRetryable {
				t.Errorf("got %v, want retryable: %t", err, tc.wantRetryable)
			}
			if got := requests.Load(); got != tc.wantRequests {
				t.Errorf("%d requests, want %d", got, tc.wantRequests)
			}
		})
	}
}
