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

package store_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/driver"
	"github.com/catena-dev/catena/store/memory"
)

// fake is a driver whose calls return the errors of a list, one after the other, and then succeed.
type fake struct {
	driver.Store
	errs   []error
	calls  int
	closed int
	saved  *store.Session
	listed store.ListOptions
}

func (f *fake) next() error {
	f.calls++
	if len(f.errs) == 0 {
		return nil
	}
	err := f.errs[0]
	f.errs = f.errs[1:]
	return err
}

func (f *fake) Get(context.Context, string, string) (*store.Session, error) {
	return &store.Session{}, f.next()
}

func (f *fake) Save(_ context.Context, _ string, session *store.Session, _ store.SaveOptions) (string, error) {
	f.saved = session
	return "v1", f.next()
}

func (f *fake) Resolve(context.Context, string, string, store.ResolveOptions) (*store.History, error) {
	return &store.History{}, f.next()
}

func (f *fake) List(_ context.Context, _, _ string, options store.ListOptions) (*store.TurnList, error) {
	f.listed = options
	return &store.TurnList{}, f.next()
}

func (f *fake) Delete(context.Context, string, string, store.DeleteOptions) error { return f.next() }

func (f *fake) Close() error {
	f.closed++
	return nil
}

// operations calls every method of a store once.
func operations(ctx context.Context, s *store.Store) map[string]func(id string) error {
	return map[string]func(id string) error{
		"get": func(id string) error {
			_, err := s.Get(ctx, id)
			return err
		},
		"save": func(id string) error {
			return s.Save(ctx, &store.Session{ResponseID: id, Status: store.StatusCompleted}, store.SaveOptions{})
		},
		"resolve": func(id string) error {
			_, err := s.Resolve(ctx, id, store.ResolveOptions{})
			return err
		},
		"list": func(id string) error {
			_, err := s.List(ctx, id, store.ListOptions{})
			return err
		},
		"delete": func(id string) error { return s.Delete(ctx, id, store.DeleteOptions{}) },
	}
}

// TestErrors: an error names the operation and the turn once, and keeps what the driver reported.
func TestErrors(t *testing.T) {
	broken := errors.New("the disk is full")
	for name, tc := range map[string]struct {
		err  error
		want string // with the operation in place of OP
		code error
	}{
		"no code":        {broken, `unable to OP response "resp_1": the disk is full`, nil},
		"only a code":    {&store.Error{Code: store.CodeUnreachable, Err: broken}, `unable to OP response "resp_1": the disk is full`, store.ErrUnreachable},
		"with a message": {&store.Error{Code: store.CodeConflict, Message: "taken"}, "taken", store.ErrConflict},
	} {
		for operation := range operations(t.Context(), nil) {
			t.Run(name+", "+operation, func(t *testing.T) {
				s := store.New(&fake{errs: []error{tc.err}}, driver.Options{})
				err := operations(t.Context(), s)[operation]("resp_1")
				want := strings.Replace(tc.want, "OP", operation, 1)
				if operation == "list" {
					want = strings.Replace(want, "list response", "list conversation", 1)
				}
				if err == nil || err.Error() != want {
					t.Errorf("got %v, want %s", err, want)
				}
				if tc.code != nil && !errors.Is(err, tc.code) || tc.code == nil && !errors.Is(err, broken) {
					t.Errorf("got %v, want %v", err, tc.err)
				}
			})
		}
	}
}

// TestRetries: every operation is repeated if the driver marks its error.
func TestRetries(t *testing.T) {
	for operation := range operations(t.Context(), nil) {
		t.Run(operation, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				unreachable := driver.Again(&store.Error{Code: store.CodeUnreachable, Retryable: true})
				f := &fake{errs: []error{unreachable, unreachable}}
				if err := operations(t.Context(), store.New(f, driver.Options{}))[operation]("resp_1"); err != nil || f.calls != 3 {
					t.Errorf("got %v after %d calls, want success after 3", err, f.calls)
				}
			})
		})
	}
}

// TestEmptyID: the driver is never called with an empty ID.
func TestEmptyID(t *testing.T) {
	for operation, want := range map[string]error{"get": store.ErrNotFound, "save": store.ErrInvalid, "resolve": nil, "list": store.ErrInvalid, "delete": nil} {
		f := &fake{}
		if err := operations(t.Context(), store.New(f, driver.Options{}))[operation](""); !errors.Is(err, want) || f.calls > 0 {
			t.Errorf("%s: got %v after %d calls, want %v after none", operation, err, f.calls, want)
		}
	}
	s := store.New(&fake{}, driver.Options{})
	if _, err := s.Resolve(t.Context(), "", store.ResolveOptions{Limit: 1, After: "x"}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("got %v for a page of the empty ID, want ErrInvalid", err)
	}
}

// TestList: the driver gets a limit, and one that cannot list conversations returns an error that says so.
func TestList(t *testing.T) {
	f := &fake{}
	s := store.New(f, driver.Options{})
	if _, err := s.List(t.Context(), "conv_1", store.ListOptions{}); err != nil || f.listed.Limit != store.DefaultListLimit {
		t.Errorf("the driver got the options %+v, and the error is %v", f.listed, err)
	}
	if _, err := s.List(t.Context(), "conv_1", store.ListOptions{Limit: 3}); err != nil || f.listed.Limit != 3 {
		t.Errorf("the driver got the options %+v, and the error is %v", f.listed, err)
	}
	_, err := s.List(t.Context(), "conv_1", store.ListOptions{Limit: store.MaxLimit + 1})
	if want := `unable to list the conversation: "limit" is "1001": must be a whole number from 1 to 1000`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	_, err = store.New(struct{ driver.Store }{f}, driver.Options{}).List(t.Context(), "conv_1", store.ListOptions{})
	if want := "this store does not support the operation: list a conversation"; !errors.Is(err, store.ErrUnsupported) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestSaveChecks: the checks run in the documented order, before the driver is called.
func TestSaveChecks(t *testing.T) {
	unexpected := "resp_9"
	expect := store.SaveOptions{ExpectedPreviousResponseID: &unexpected}
	for name, tc := range map[string]struct {
		session store.Session
		options store.SaveOptions
		want    error
	}{
		"invalid":    {store.Session{ResponseID: "resp_1", Request: []byte(`{"too":"large"}`)}, expect, store.ErrInvalid},
		"too large":  {store.Session{ResponseID: "resp_1", Status: "completed", Request: []byte(`{"too":"large"}`)}, expect, store.ErrTooLarge},
		"unexpected": {store.Session{ResponseID: "resp_1", Status: "completed"}, expect, store.ErrConflict},
		"allowed":    {store.Session{ResponseID: "resp_1", Status: "completed", Request: []byte(`{"a":1}`)}, store.SaveOptions{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{}
			err := store.New(f, driver.Options{MaxTurnBytes: 10}).Save(t.Context(), &tc.session, tc.options)
			if !errors.Is(err, tc.want) || (f.calls == 1) != (tc.want == nil) {
				t.Errorf("got %v after %d calls, want %v", err, f.calls, tc.want)
			}
		})
	}
}

// TestSaveTimes: the driver gets times in UTC and whole seconds, and the caller's session keeps its own.
func TestSaveTimes(t *testing.T) {
	f := &fake{}
	session := &store.Session{ResponseID: "resp_1", Status: "completed", CreatedAt: time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600))}
	before := session.CreatedAt
	if err := store.New(f, driver.Options{}).Save(t.Context(), session, store.SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	if want := time.Date(2026, 1, 2, 2, 4, 5, 0, time.UTC); f.saved.CreatedAt != want || !f.saved.CompletedAt.IsZero() {
		t.Errorf("times %v and %v, want %v and none", f.saved.CreatedAt, f.saved.CompletedAt, want)
	}
	if session.CreatedAt != before || session.Version != "v1" {
		t.Errorf("the caller's session is %+v, want it with the version and otherwise unchanged", session)
	}
}

// TestClosed: a closed store rejects calls in every namespace, and is closed only once.
func TestClosed(t *testing.T) {
	f := &fake{}
	s := store.New(f, driver.Options{})
	other := s.InNamespace("other")
	for _, closing := range []*store.Store{other, s, s} {
		if err := closing.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, s := range []*store.Store{s, other} {
		for operation, call := range operations(t.Context(), s) {
			if err := call("resp_1"); err == nil || !strings.Contains(err.Error(), "the store is closed") {
				t.Errorf("%s: got %v, want the error of a closed store", operation, err)
			}
		}
	}
	if f.calls != 0 || f.closed != 1 {
		t.Errorf("the driver was called %d times and closed %d times, want 0 and 1", f.calls, f.closed)
	}
}

// TestErrorsAreDocumented: the table of errors in docs/library.md is complete.
func TestErrorsAreDocumented(t *testing.T) {
	source, err := os.ReadFile("types.go")
	if err != nil {
		t.Fatal(err)
	}
	document, err := os.ReadFile("../docs/library.md")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`(?m)^\tErr[A-Z]\w+`).FindAllString(string(source), -1)
	if len(names) != len(driver.Codes()) {
		t.Errorf("types.go defines the errors %v, want one for each of %d codes", names, len(driver.Codes()))
	}
	for _, name := range names {
		if row := "(?m)^\\|[^|]*`" + strings.TrimSpace(name) + "`"; !regexp.MustCompile(row).Match(document) {
			t.Errorf("%s is missing", name)
		}
	}
}

// TestMetrics: operations are counted by result, for all namespaces together, and the set of labels is bounded.
func TestMetrics(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	s := memory.New(memory.Options{})
	_ = operations(t.Context(), s)["save"]("resp_1")
	_ = operations(t.Context(), s.InNamespace("other"))["get"]("resp_1")
	_ = operations(canceled, s)["get"]("resp_1")
	own := store.New(&fake{errs: []error{&store.Error{Code: "my.own"}}}, driver.Options{})
	_ = operations(t.Context(), own)["delete"]("resp_1")

	for want, s := range map[string]*store.Store{
		`code="ok",operation="save"`:                     s,
		`code="session.chain.not_found",operation="get"`: s,
		`code="canceled",operation="get"`:                s,
		`code="other",operation="delete"`:                own,
	} {
		registry := prometheus.NewRegistry()
		registry.MustRegister(s.Collector())
		if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
			t.Errorf("%v, %v", problems, err)
		}
		page := httptest.NewRecorder()
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		if !strings.Contains(page.Body.String(), "catena_store_operation_seconds_count{"+want+"} 1\n") {
			t.Errorf("%s is missing in the metrics:\n%s", want, page.Body)
		}
	}
}

// limited is a driver that reports an exceeded quota in one namespace.
type limited struct {
	driver.Store
	exceeded string
}

func (l limited) CheckQuota(_ context.Context, namespace string) error {
	if namespace == l.exceeded {
		return &store.Error{Code: store.CodeQuotaExceeded}
	}
	return nil
}

// TestCheck: a store without a check has nothing to report.
func TestCheck(t *testing.T) {
	s := memory.New(memory.Options{})
	if err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Check(t.Context()); err == nil {
		t.Error("a closed store returned no error")
	}
}

// TestCheckQuota: a store reports the quota of its own namespace, if its driver has quotas.
func TestCheckQuota(t *testing.T) {
	s := store.New(limited{&fake{}, "full"}, driver.Options{Namespace: "default"})
	if err := s.CheckQuota(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.InNamespace("full").CheckQuota(t.Context()); !errors.Is(err, store.ErrQuotaExceeded) {
		t.Errorf("got %v, want ErrQuotaExceeded", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.CheckQuota(t.Context()); err == nil {
		t.Error("a closed store returned no error")
	}
	if err := memory.New(memory.Options{}).CheckQuota(t.Context()); !errors.Is(err, store.ErrUnsupported) {
		t.Errorf("got %v, want ErrUnsupported", err)
	}
}
