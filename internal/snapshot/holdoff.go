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

package snapshot

import (
	"context"
	"fmt"
	"strings"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"
)

// sweeperName is the object that contains the UID of the cluster that may delete snapshots in the bucket. While sweeps are
// held off, the UID is followed by the start time of the hold-off. An administrator can end the hold-off by writing only
// the UID.
const sweeperName = "catena-sweeper"

func (s *blobStore) HeldOff(ctx context.Context, now time.Time) (time.Time, error) {
	var text []byte
	cluster, err := doValue(ctx, s, s.claim.identify)
	if err == nil {
		text, err = doValue(ctx, s, func(ctx context.Context) ([]byte, error) { return s.bucket.ReadAll(ctx, sweeperName) })
	}
	if err != nil && gcerrors.Code(err) != gcerrors.NotFound {
		return time.Time{}, fmt.Errorf("unable to determine whether sweeps of the bucket are held off: %w", err)
	}
	switch words := strings.Fields(string(text)); {
	case len(words) == 1 && words[0] == cluster:
		return time.Time{}, nil
	case len(words) == 2 && words[0] == cluster:
		if since, err := time.Parse(time.RFC3339, words[1]); err == nil {
			return since, nil
		}
	}
	return now, s.HoldOff(ctx, now)
}

func (s *blobStore) HoldOff(ctx context.Context, since time.Time) error {
	err := s.do(ctx, func(ctx context.Context) error {
		text, err := s.claim.identify(ctx)
		if err != nil {
			return err
		}
		if !since.IsZero() {
			text += " " + since.UTC().Format(time.RFC3339)
		}
		return s.bucket.WriteAll(ctx, sweeperName, []byte(text), &blob.WriterOptions{ContentType: "text/plain"})
	})
	if err != nil {
		return fmt.Errorf("unable to record whether sweeps of the bucket are held off: %w", err)
	}
	return nil
}
