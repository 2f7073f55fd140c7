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

package driver_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/catena-dev/catena/store/driver"
)

// TestOptional: a driver that does not implement an optional interface reports that it does not support the operation.
func TestOptional(t *testing.T) {
	type lister interface{ List() []string }
	var with struct {
		driver.Store
		lister
	}
	if _, err := driver.Optional[lister](with, "list conversations"); err != nil {
		t.Error(err)
	}
	var without struct{ driver.Store }
	_, err := driver.Optional[lister](without, "list conversations")
	if !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(), "list conversations") || driver.IsRetryable(err) {
		t.Errorf("got %v, want an error with CodeUnsupported", err)
	}
}

// TestCodes: Codes returns every code, without duplicates.
func TestCodes(t *testing.T) {
	codes := driver.Codes()
	for _, err := range []error{
		driver.ErrNotFound, driver.ErrCycleDetected, driver.ErrDepthExceeded, driver.ErrUnavailable, driver.ErrConflict,
		driver.ErrInvalid, driver.ErrUnreachable, driver.ErrUnsupported, driver.ErrQuotaExceeded, driver.ErrUnreadable, driver.ErrTooLarge,
	} {
		e, ok := errors.AsType[*driver.Error](err)
		if !ok || !slices.Contains(codes, e.Code) {
			t.Errorf("%v is not one of the codes", err)
		}
	}
	slices.Sort(codes)
	if len(slices.Compact(codes)) != len(driver.Codes()) {
		t.Errorf("duplicate codes: %v", codes)
	}
}

func TestRetry(t *testing.T) {
	broken := errors.New("broken")
	for name, tc := range map[string]struct {
		err       error
		failures  int
		wantCalls int
		wantErr   error
	}{
		"success":              {nil, 0, 1, nil},
		"not marked":           {broken, 1, 1, broken},
		"marked":               {driver.Again(broken), 2, 3, nil},
		"marked every time":    {driver.Again(broken), 100, 7, broken},
		"no error, not marked": {driver.Again(nil), 100, 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				_, err := driver.Retry(t.Context(), func() (struct{}, error) {
					if calls++; calls <= tc.failures {
						return struct{}{}, tc.err
					}
					return struct{}{}, nil
				})
				if err != tc.wantErr || calls != tc.wantCalls { //nolint:errorlint // the mark must be gone
					t.Errorf("got %v after %d calls, want %v after %d", err, calls, tc.wantErr, tc.wantCalls)
				}
			})
		})
	}
}

// TestRetryDeadline: the error contains the context's error and the error of the last attempt.
func TestRetryDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := driver.Retry(ctx, func() (struct{}, error) { return struct{}{}, driver.Again(broken) })
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, broken) {
			t.Errorf("got %v, want the error of the context and of the last attempt", err)
		}
	})
}

func TestRegisterTwice(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("registering a scheme twice did not panic")
		}
	}()
	open := func(context.Context, string) (driver.Store, driver.Options, error) { return nil, driver.Options{}, nil }
	driver.Register("twice", open)
	driver.Register("twice", open)
}
