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

package operator

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestOptions(t *testing.T) {
	tests := map[string]struct {
		args    []string
		wantErr string // part of the error; empty if the options are valid
	}{
		"defaults":                  {},
		"depth as installed":        {args: []string{"--max-depth=1000"}},
		"depth beyond the limit":    {args: []string{"--max-depth=10001"}, wantErr: "--max-depth is 10001: must be from 0 to --max-depth-limit, which is 10000"},
		"no workers":                {args: []string{"--concurrent-reconciles=0"}, wantErr: "--concurrent-reconciles is 0: must be at least 1"},
		"negative rate of events":   {args: []string{"--events-per-second=-1"}, wantErr: "--events-per-second is -1: must not be negative"},
		"no status rewrites":        {args: []string{"--status-rewrites-per-second=0"}, wantErr: "--status-rewrites-per-second is 0: must be positive"},
		"no bytes to rewrite":       {args: []string{"--status-rewrite-bytes-per-second=-1"}, wantErr: "--status-rewrite-bytes-per-second is -1: must be positive"},
		"no JSON values":            {args: []string{"--status-values-per-second=0"}, wantErr: "--status-values-per-second is 0: must be positive"},
		"negative hold":             {args: []string{"--status-rewrite-hold=-1s"}, wantErr: "--status-rewrite-hold is -1s: must not be negative"},
		"no hold":                   {args: []string{"--status-rewrite-hold=0s"}},
		"quota interval too short":  {args: []string{"--session-quota-interval=99ms"}, wantErr: "--session-quota-interval is 99ms: must be at least 100ms"},
		"negative usage metrics":    {args: []string{"--usage-metric-namespaces=-1"}, wantErr: "--usage-metric-namespaces is -1: must not be negative"},
		"no usage metrics":          {args: []string{"--usage-metric-namespaces=0"}},
		"no events":                 {args: []string{"--events-per-second=0"}},
		"cache below one turn":      {args: []string{"--body-cache-bytes=1"}, wantErr: "--body-cache-bytes is 1: must be at least 2097152"},
		"history beyond in-flight":  {args: []string{"--max-history-bytes=4194304", "--max-inflight-bytes=2097152"}, wantErr: "must be from 2097152 to a third of --max-inflight-bytes, which is 2097152"},
		"no live reads":             {args: []string{"--max-live-reads=0"}, wantErr: "--max-live-reads is 0: must be at least 1"},
		"no confirmations":          {args: []string{"--confirmations-per-second=0"}, wantErr: "--confirmations-per-second is 0: must be from 1 to 1000000"},
		"no response bytes":         {args: []string{"--answer-bytes-per-second=0"}, wantErr: "--answer-bytes-per-second is 0: must be at least 1"},
		"no requests":               {args: []string{"--max-inflight-requests=0"}, wantErr: "--max-inflight-requests is 0: must be at least 1"},
		"silence below a bookmark":  {args: []string{"--watch-silence-timeout=1m59s"}, wantErr: "--watch-silence-timeout is 1m59s: must be at least 2m0s"},
		"no API timeout":            {args: []string{"--api-timeout=0s"}, wantErr: "--api-timeout is 0s: must be positive"},
		"stall below a reconcile":   {args: []string{"--stall-timeout=3m59s"}, wantErr: "--stall-timeout is 3m59s: must be at least 4m0s"},
		"status with each turn":     {args: []string{"--conversation-status-interval=999ms"}, wantErr: "--conversation-status-interval is 999ms: must be at least 1s"},
		"no deletions":              {args: []string{"--turn-deletions-per-second=0"}, wantErr: "--turn-deletions-per-second is 0: must be at least 0.1"},
		"deletions: not a number":   {args: []string{"--turn-deletions-per-second=NaN"}, wantErr: "--turn-deletions-per-second is NaN: must be at least 0.1"},
		"no sweep interval":         {args: []string{"--snapshot-sweep-interval=0s"}, wantErr: "--snapshot-sweep-interval is 0s: must be positive"},
		"no owner interval":         {args: []string{"--owner-reference-interval=0s"}, wantErr: "--owner-reference-interval is 0s: must be positive"},
		"share is not a number":     {args: []string{"--snapshot-sweep-max-share=NaN"}, wantErr: "--snapshot-sweep-max-share is NaN: must be from 0 to 1"},
		"negative hold-off":         {args: []string{"--snapshot-sweep-hold-off=-1s"}, wantErr: "--snapshot-sweep-hold-off is -1s: must not be negative"},
		"no hold-off":               {args: []string{"--snapshot-sweep-hold-off=0s"}},
		"share above 1":             {args: []string{"--snapshot-sweep-max-share=1.1"}, wantErr: "--snapshot-sweep-max-share is 1.1: must be from 0 to 1"},
		"grace period below a save": {args: []string{"--snapshot-grace-period=29m"}, wantErr: "--snapshot-grace-period is 29m0s: must be at least 30m0s"},
		"unsafe grace period":       {args: []string{"--snapshot-grace-period=1s", "--unsafe-snapshot-grace-period"}},
		"no request timeout":        {args: []string{"--request-timeout=0s"}, wantErr: "--request-timeout is 0s: must be positive"},
		"negative shutdown delay":   {args: []string{"--shutdown-delay-duration=-1s"}, wantErr: "--shutdown-delay-duration is -1s: must not be negative"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			o := NewOptions()
			flags := pflag.NewFlagSet("catena", pflag.ContinueOnError)
			o.AddFlags(flags)
			if err := flags.Parse(tc.args); err != nil {
				t.Fatal(err)
			}
			err := o.Validate()
			if tc.wantErr == "" && err != nil {
				t.Errorf("Validate: %v", err)
			}
			if tc.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tc.wantErr)) {
				t.Errorf("Validate: got %v, want it to contain %q", err, tc.wantErr)
			}
		})
	}
}
