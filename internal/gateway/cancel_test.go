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

package gateway

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCancel(t *testing.T) {
	f := start(t, nil)
	f.seed("resp_done", "", "completed")
	f.seed("resp_pending", "", "in_progress")
	const synchronous = `{"message":"Cannot cancel a synchronous response.","type":"invalid_request_error","param":"response_id","code":null}`
	for id, tc := range map[string]struct {
		wantStatus int
		wantError  string
	}{
		"resp_done":    {http.StatusBadRequest, synchronous},
		"resp_pending": {http.StatusBadRequest, synchronous},
		"resp_none": {
			http.StatusNotFound, `{"message":"Response with id 'resp_none' not found.","type":"invalid_request_error","param":null,"code":null}`,
		},
	} {
		t.Run(id, func(t *testing.T) {
			r := f.do(http.MethodPost, "/v1/responses/"+id+"/cancel", "")
			if diff := cmp.Diff(tc.wantError, r.get("error")); diff != "" || r.status != tc.wantStatus {
				t.Errorf("status %d, want %d, error (-want +got):\n%s", r.status, tc.wantStatus, diff)
			}
		})
	}
}
