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

package resolveapi

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"github.com/catena-dev/catena/internal/operator/resolve"
	"github.com/catena-dev/catena/store/driver"
)

// answerFormat is the version of everything that makes the bytes of an answer from what is stored: chain.Flatten, the pages and cursors of
// package history, and answer.WriteTo. Increase it when one of them makes other bytes, so that replicas of different builds have different
// ETags.
const answerFormat = 1

// etagOf returns the ETag of the answer to a request with valid options. Answers with the same ETag have the same bytes.
func etagOf(namespace string, h *resolve.Result, options driver.ResolveOptions) string {
	hash := sha256.New()
	_, _ = fmt.Fprintf(hash, "%d %q %q %q %x %s", answerFormat, namespace, h.Name, h.UID, h.Revision, bytesOf(options).Query().Encode())
	if c := h.Conversation; c != nil {
		_, _ = fmt.Fprintf(hash, " %q %q %#v", c.Name, c.UID, c.Hidden)
	}
	return `"` + base64.RawURLEncoding.EncodeToString(hash.Sum(nil)) + `"`
}

// bytesOf returns the options that change the bytes of an answer. The others determine only whether there is one. Defaults are the same as
// no value.
func bytesOf(o driver.ResolveOptions) driver.ResolveOptions {
	o.MaxDepth, o.ContinueIncomplete, o.Version = nil, false, ""
	if o.Instructions == driver.InstructionsAll {
		o.Instructions = ""
	}
	if o.Order == driver.OrderAscending {
		o.Order = ""
	}
	return o
}

// conditional is a request whose answer has an ETag, and may be 304 instead.
type conditional struct {
	http.ResponseWriter
	noneMatch noneMatch
	// notModified is set if the answer is 304.
	notModified bool
}

type conditionalKey struct{}

// restrictions are those of k8s.io/apiserver for the media types of an answer: what it does not accept, it skips in the list of a client.
var restrictions = handlers.RequestScope{TableConvertor: tableConvertor{}}

// withConditions makes requests conditional, except those for a Table or for metadata only, which do not return an answer as it is.
func withConditions(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		media, ok := negotiation.NegotiateMediaTypeOptions(req.Header.Get("Accept"), codecs.SupportedMediaTypes(), &restrictions)
		if !ok || media.Convert != nil {
			next.ServeHTTP(w, req)
			return
		}
		c := &conditional{ResponseWriter: w, noneMatch: parseNoneMatch(req.Header.Values("If-None-Match"))}
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(c), req.WithContext(context.WithValue(req.Context(), conditionalKey{}, c)))
	})
}

// conditionalOf returns the conditional request of a context, or nil.
func conditionalOf(ctx context.Context) *conditional {
	c, _ := ctx.Value(conditionalKey{}).(*conditional)
	return c
}

// Unwrap returns the writer of the answer.
func (c *conditional) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// WriteHeader writes 304 if the answer is not modified. k8s.io/apiserver only knows that it has no content.
func (c *conditional) WriteHeader(code int) {
	if c.notModified {
		code = http.StatusNotModified
	}
	c.ResponseWriter.WriteHeader(code)
}
