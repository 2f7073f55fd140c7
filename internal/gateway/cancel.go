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

import "net/http"

// cancel answers a request to cancel a response. OpenAI cancels only responses that were created in the background, which the gateway
// does not do: to cancel a response, its client disconnects.
func (g *Gateway) cancel(_ http.ResponseWriter, r *http.Request, c *call) error {
	if _, err := g.get(r.Context(), c, r.PathValue("id")); err != nil {
		return err
	}
	return invalidRequest("response_id", "", "Cannot cancel a synchronous response.")
}
