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
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/catena-dev/catena/internal/fair"
	"github.com/catena-dev/catena/store/memory"
)

// TestCompressedRequests: what is sent to the engine and stored is the decompressed body.
func TestCompressedRequests(t *testing.T) {
	const body = `{"input":"secret text"}`
	f := start(t, nil)
	for name, tc := range map[string]struct{ encoding, body string }{
		"none":                {"", body},
		"identity":            {"identity", body},
		"gzip":                {"gzip", gzipped(t, body)},
		"old name of gzip":    {"x-gzip", gzipped(t, body)},
		"upper case":          {"GZIP", gzipped(t, body)},
		"members of gzip":     {"gzip", gzipped(t, body[:5]) + gzipped(t, body[5:])},
		"zstd":                {"zstd", zstdFrame(t, body)},
		"frames of zstd":      {"zstd", zstdFrame(t, body[:5]) + zstdFrame(t, body[5:])},
		"stream of zstd":      {"zstd", zstdStream(t, body, zstdWindow)},
		"empty frame of zstd": {"zstd", zstdStream(t, "", zstdWindow) + zstdFrame(t, body)},
	} {
		t.Run(name, func(t *testing.T) {
			r := f.create(tc.body, "Content-Encoding", tc.encoding)
			sent, header := f.sent.last()
			want := `{"store":false,"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"secret text"}]}]}`
			if diff := cmp.Diff(want, sent); diff != "" || header.Get("Content-Encoding") != "" {
				t.Errorf("the engine got the encoding %q and (-want +got):\n%s", header.Get("Content-Encoding"), diff)
			}
			if diff := cmp.Diff(body, string(f.saved(r.get("id")).Request)); diff != "" {
				t.Errorf("stored request (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRejectedCompressedRequests(t *testing.T) {
	f := start(t, nil, func(o *Options) { o.MaxRequestBytes = 1 << 20 })
	sent := f.sent.count()
	const body = `{"input":"secret text"}`
	bomb := `{"input":"` + strings.Repeat("a", 1<<20) + `"}`
	damaged := func(format string) string {
		return `{"message":"We could not decompress the body of your request: it is damaged or incomplete (` + format + `).","type":"invalid_request_error","param":null,"code":"invalid_content_encoding"}`
	}
	unsupported := func(encoding string) string {
		return `{"message":"Unsupported Content-Encoding: '` + encoding + `'. Use gzip, zstd or none.","type":"invalid_request_error","param":null,"code":"unsupported_content_encoding"}`
	}
	const tooLarge = `{"message":"The request is too large.","type":"invalid_request_error","param":null,"code":"request_too_large"}`
	const window = `{"message":"We could not decompress the body of your request: it needs a window of more than 8 MiB (zstd).","type":"invalid_request_error","param":null,"code":"invalid_content_encoding"}`
	for name, tc := range map[string]struct {
		encoding, body string
		wantStatus     int
		wantError      string
	}{
		"br":                       {"br", body, 415, unsupported("br")},
		"two encodings":            {"gzip, zstd", body, 415, unsupported("gzip, zstd")},
		"gzip, bomb":               {"gzip", gzipped(t, bomb), 413, tooLarge},
		"gzip, bomb of members":    {"gzip", strings.Repeat(gzipped(t, strings.Repeat(" ", 1<<18)), 5), 413, tooLarge},
		"gzip, nothing":            {"gzip", "", 400, damaged("gzip")},
		"gzip, not compressed":     {"gzip", body, 400, damaged("gzip")},
		"gzip, truncated header":   {"gzip", gzipped(t, body)[:5], 400, damaged("gzip")},
		"gzip, truncated":          {"gzip", gzipped(t, body)[:20], 400, damaged("gzip")},
		"gzip, truncated checksum": {"gzip", strings.TrimSuffix(gzipped(t, body), "\x00"), 400, damaged("gzip")},
		"gzip, then garbage":       {"gzip", gzipped(t, body) + "garbage", 400, damaged("gzip")},
		"gzip of no JSON": {
			"gzip", gzipped(t, "secret text"), 400,
			`{"message":"We could not parse the JSON body of your request: it must be JSON.","type":"invalid_request_error","param":null,"code":"invalid_json"}`,
		},
		"zstd, bomb":               {"zstd", zstdFrame(t, bomb), 413, tooLarge},
		"zstd, bomb of frames":     {"zstd", strings.Repeat(zstdFrame(t, strings.Repeat(" ", 1<<18)), 5), 413, tooLarge},
		"zstd, not compressed":     {"zstd", body, 400, damaged("zstd")},
		"zstd, truncated":          {"zstd", zstdFrame(t, body)[:20], 400, damaged("zstd")},
		"zstd, damaged":            {"zstd", zstdFrame(t, body)[:20] + "garbage", 400, damaged("zstd")},
		"zstd, then garbage":       {"zstd", zstdFrame(t, body) + "garbage", 400, damaged("zstd")},
		"zstd, large window":       {"zstd", zstdStream(t, body, 2*zstdWindow), 400, window},
		"zstd, large window later": {"zstd", zstdFrame(t, body) + zstdStream(t, body, 2*zstdWindow), 400, window},
		"zstd, large segment":      {"zstd", "\x28\xb5\x2f\xfd\xe0" + strings.Repeat("\x7f", 8), 400, window},
	} {
		t.Run(name, func(t *testing.T) {
			r := f.do(http.MethodPost, "/v1/responses", tc.body, "Content-Encoding", tc.encoding)
			if diff := cmp.Diff(tc.wantError, r.get("error")); diff != "" || r.status != tc.wantStatus {
				t.Errorf("status %d, want %d, error (-want +got):\n%s", r.status, tc.wantStatus, diff)
			}
			if accepted := r.header.Get("Accept-Encoding"); (accepted == "gzip, zstd") != (r.status == http.StatusUnsupportedMediaType) {
				t.Errorf("status %d with Accept-Encoding: %q", r.status, accepted)
			}
		})
	}
	if f.sent.count() != sent || strings.Contains(f.log.String(), "secret text") {
		t.Error("the engine received a request, or the log contains text of one")
	}
}

// TestDecompressionIsMetered: what a body expands to, and the window of zstd, are counted before they are allocated. Afterwards, only the
// body is.
func TestDecompressionIsMetered(t *testing.T) {
	spaces := strings.Repeat(" ", 1<<20)
	for name, tc := range map[string]struct {
		decoder *decoder
		sent    string
		// others is what other calls of the tenant hold, of at most 12 MiB. A call may begin with at most half of what remains free.
		others   int64
		wantCode string
		wantHeld int64
	}{
		"gzip":                   {gzipDecoder, gzipped(t, spaces), 0, "", 2 << 20},
		"zstd":                   {zstdDecoder, zstdFrame(t, spaces), 0, "", 2 << 20},
		"damaged":                {zstdDecoder, zstdFrame(t, spaces)[:20], 0, "invalid_content_encoding", 0},
		"too large":              {gzipDecoder, gzipped(t, spaces+" "), 0, "request_too_large", 0},
		"no memory for the body": {gzipDecoder, gzipped(t, spaces), 6 << 20, codeOverloaded, 0},
		"memory for a short one": {gzipDecoder, gzipped(t, "{}"), 6 << 20, "", 4},
		"no memory for a window": {zstdDecoder, zstdFrame(t, "{}"), 6 << 20, codeOverloaded, 0},
	} {
		t.Run(name, func(t *testing.T) {
			g := &Gateway{parses: fair.NewBudget(2), memory: newSharedLimit(24<<20, "", ""), options: Options{MaxRequestBytes: 1 << 20}}
			c := &call{store: memory.New(memory.Options{}).InNamespace("a"), memory: g.memory.of("a")}
			if err := g.memory.of("a").take(tc.others); err != nil {
				t.Fatal(err)
			}
			sent, err := c.readAll(strings.NewReader(tc.sent))
			if err != nil {
				t.Fatal(err)
			}
			_, err = g.decompress(t.Context(), c, tc.decoder, sent)
			code := ""
			if e, ok := errors.AsType[*apiError](err); ok {
				code = e.code
			}
			if held := c.memory.holds(); code != tc.wantCode || held != tc.wantHeld {
				t.Errorf("%d bytes are held, want %d; error %v, want the code %q", held, tc.wantHeld, err, tc.wantCode)
			}
		})
	}
}

// TestDecompressionTakesTurns: a compressed body waits for its turn, however small it is.
func TestDecompressionTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Gateway{parses: fair.NewBudget(2), memory: newSharedLimit(1<<30, "", ""), options: Options{MaxRequestBytes: 1 << 20}}
		c := &call{store: memory.New(memory.Options{}).InNamespace("a"), memory: g.memory.of("a")}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := g.parses.Acquire(ctx, "a", 1); err != nil {
			t.Fatal(err)
		}
		sent := []byte(zstdFrame(t, "{}"))
		if _, err := g.decompress(ctx, c, zstdDecoder, sent); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want it to wait", err)
		}
		g.parses.Release("a", 1)
		if body, err := g.decompress(t.Context(), c, zstdDecoder, sent); err != nil || string(body) != "{}" {
			t.Errorf("got %q and %v", body, err)
		}
	})
}

func gzipped(t *testing.T, text string) string {
	t.Helper()
	var b strings.Builder
	compressTo(t, gzip.NewWriter(&b), text)
	return b.String()
}

// zstdFrame returns a frame that has the size of its content.
func zstdFrame(t *testing.T, text string) string {
	t.Helper()
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(encoder.EncodeAll([]byte(text), nil))
}

// zstdStream returns a frame as written by a client that does not know the size of its content in advance.
func zstdStream(t *testing.T, text string, window int) string {
	t.Helper()
	var b strings.Builder
	encoder, err := zstd.NewWriter(&b, zstd.WithWindowSize(window), zstd.WithZeroFrames(true))
	if err != nil {
		t.Fatal(err)
	}
	half := len(text) / 2
	_, err = io.WriteString(encoder, text[:half])
	if err := errors.Join(err, encoder.Flush()); err != nil { // writes the header
		t.Fatal(err)
	}
	compressTo(t, encoder, text[half:])
	return b.String()
}

func compressTo(t *testing.T, w io.WriteCloser, text string) {
	t.Helper()
	_, err := io.WriteString(w, text)
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
}
