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
// held off, the UID is followed by the times of the HoldOff. An administrator can end the hold-off by writing only the UID.
const sweeperName = "catena-sweeper"

// HoldOff is a time in which the sweeps of a store delete nothing. It has a resolution of seconds.
type HoldOff struct {
	// Since is when it was last prolonged, and Begun when it began.
	Since, Begun time.Time
}

func (s *blobStore) HeldOff(ctx context.Context) (h HoldOff, begun bool, err error) {
	var text []byte
	cluster, err := doValue(ctx, s, s.claim.identify)
	if err == nil {
		text, err = doValue(ctx, s, func(ctx context.Context) ([]byte, error) { return s.bucket.ReadAll(ctx, sweeperName) })
	}
	if err != nil && gcerrors.Code(err) != gcerrors.NotFound {
		return HoldOff{}, false, fmt.Errorf("unable to determine whether sweeps of the bucket are held off: %w", err)
	}
	if words := strings.Fields(string(text)); len(words) > 0 && words[0] == cluster {
		h, begun = parseHoldOff(words[1:])
	}
	return h, begun, nil
}

// parseHoldOff parses the times. An earlier version wrote only Since.
func parseHoldOff(times []string) (h HoldOff, ok bool) {
	switch len(times) {
	case 0:
		return HoldOff{}, true
	case 1, 2:
		since, err := time.Parse(time.RFC3339, times[0])
		if err != nil {
			return HoldOff{}, false
		}
		begun, err := time.Parse(time.RFC3339, times[len(times)-1])
		return HoldOff{Since: since, Begun: begun}, err == nil
	}
	return HoldOff{}, false
}

func (s *blobStore) SetHeldOff(ctx context.Context, h HoldOff) error {
	err := s.do(ctx, func(ctx context.Context) error {
		text, err := s.claim.identify(ctx)
		if err != nil {
			return err
		}
		if h != (HoldOff{}) {
			text += " " + h.Since.UTC().Format(time.RFC3339) + " " + h.Begun.UTC().Format(time.RFC3339)
		}
		return s.bucket.WriteAll(ctx, sweeperName, []byte(text), &blob.WriterOptions{ContentType: "text/plain"})
	})
	if err != nil {
		return fmt.Errorf("unable to record whether sweeps of the bucket are held off: %w", err)
	}
	return nil
}
