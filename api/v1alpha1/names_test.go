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

package v1alpha1

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"math"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"
)

func TestObjectName(t *testing.T) {
	const uuid = "6f8e4b1c-0d8e-4c89-b3c1-1f6d9d9a3f10"
	a := func(n int) string { return strings.Repeat("a", n) }
	tests := map[string]struct {
		id   string
		want string
	}{
		"an ID of OpenAI's":      {"resp_67ccd2bed1ec8190", "resp.67ccd2bed1ec8190"},
		"short":                  {"resp_67cc", "resp.67cc"},
		"several underscores":    {"a_b-c_d", "a.b-c.d"},
		"UUID":                   {uuid, uuid},
		"digits":                 {"42", "42"},
		"sha256 alone":           {"sha256", "sha256"},
		"sha256 within":          {"resp_sha256_a", "resp.sha256.a"},
		"253 characters":         {a(251) + "_b", a(251) + ".b"},
		"254 characters":         {a(252) + "_b", hashed(a(252) + "_b")},
		"254 without underscore": {a(254), hashed(a(254))},
		"512 characters":         {a(512), hashed(a(512))},
		// Written out, because these names are in clusters: nobody may change the encoding by accident.
		"empty":               {"", "sha256.4oymiquy7qobjgx36tejs35zeqt24qpemsnzgtfeswmrw6csxbkq"},
		"upper case":          {"ABC", "sha256.wxkaixb7izx2sh7czrvl46jdfinfptprat32e3trnyfb4j4j354a"},
		"dot":                 {"resp.67cc", hashed("resp.67cc")},
		"dot and underscore":  {"resp_67.cc", hashed("resp_67.cc")},
		"sha256_ prefix":      {"sha256_" + a(52), hashed("sha256_" + a(52))},
		"sha256. prefix":      {"sha256." + a(52), hashed("sha256." + a(52))},
		"slash":               {"resp/67cc", hashed("resp/67cc")},
		"unicode":             {"antwort_é_日本", hashed("antwort_é_日本")},
		"space":               {"resp 67cc", hashed("resp 67cc")},
		"newline at the end":  {"resp_67cc\n", hashed("resp_67cc\n")},
		"leading underscore":  {"_resp", hashed("_resp")},
		"trailing underscore": {"resp_", hashed("resp_")},
		"double underscore":   {"resp__67cc", hashed("resp__67cc")},
		"hyphen at an end":    {"resp-_67cc", hashed("resp-_67cc")},
		"only an underscore":  {"_", hashed("_")},
		"not UTF-8":           {"\xff", hashed("\xff")},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := ObjectName(tc.id); got != tc.want {
				t.Errorf("ObjectName(%q): got %q, want %q", tc.id, got, tc.want)
			}
		})
	}
}

func TestObjectNameProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := responseIDs().Draw(t, "id")
		name := ObjectName(id)
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 || len(name) > 253 {
			t.Errorf("ObjectName(%q) is %q: not a name of an object: %v", id, name, problems)
		}
		want := hashed(id)
		if isDirect(id) {
			want = strings.ReplaceAll(id, "_", ".")
		}
		if name != want {
			t.Errorf("ObjectName(%q): got %q, want %q", id, name, want)
		}
		if got, ok := ResponseID(name); ok != isDirect(id) || ok && got != id {
			t.Errorf("ResponseID(%q): got %q and %t, want %q and %t", name, got, ok, id, isDirect(id))
		}
		other := relatives(id).Draw(t, "other")
		if other != id && ObjectName(other) == name {
			t.Errorf("%q and %q have the same name: %q", id, other, name)
		}
	})
}

func TestSummaryName(t *testing.T) {
	const most = math.MaxInt32
	a := func(n int) string { return strings.Repeat("a", n) }
	tests := map[string]struct {
		id         string
		start, end int32
		want       string
	}{
		"an ID of OpenAI's":         {"conv_67cc", 0, 2, "conv.67cc-0-2"},
		"an ID that ends like this": {"conv_67cc-0-2", 10, 20, "conv.67cc-0-2-10-20"},
		"unicode":                   {"é", 0, 1, hashed("é") + "-0-1"},
		"231 characters":            {a(231), most - 1, most, a(231) + "-2147483646-2147483647"},
		"232 characters":            {a(232), most - 1, most, hashed(a(232)) + "-2147483646-2147483647"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := SummaryName(tc.id, SummaryTurns(tc.start, tc.end))
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if problems := validation.IsDNS1123Subdomain(got); len(problems) > 0 {
				t.Errorf("%q is not a name of an object: %v", got, problems)
			}
		})
	}
}

// TestSummaryNameIsInjective: the ID, if it is not hashed, and the turns can be read from the name.
func TestSummaryNameIsInjective(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		turn := rapid.Int32Range(0, math.MaxInt32)
		id, start, end := responseIDs().Draw(t, "id"), turn.Draw(t, "start"), turn.Draw(t, "end")
		name := SummaryName(id, SummaryTurns(start, end))
		base, ok := strings.CutSuffix(name, fmt.Sprintf("-%d-%d", start, end))
		if got, direct := ResponseID(base); !ok || direct && got != id || !direct && base != hashed(id) {
			t.Errorf("the name of the summary of %q from %d to %d is %q", id, start, end, name)
		}
	})
}

// responseIDs generates IDs on both sides of every edge of the rule.
func responseIDs() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.StringMatching(`resp_[0-9a-f]{2,48}`),
		rapid.StringMatching(`[a-z0-9]([-a-z0-9]{0,4}[a-z0-9])?(_[a-z0-9]([-a-z0-9]{0,4}[a-z0-9])?){0,4}`),
		rapid.StringOfN(rapid.RuneFrom([]rune("ab09-_.A")), 1, 8, -1),
		rapid.StringMatching(`sha256[_.]?[a-z2-7]{0,3}`),
		rapid.StringMatching(`[a-z]{250}[-a-z_]{0,5}[a-z]`),
		rapid.StringN(1, 20, -1),
	)
}

// relatives generates IDs that are likely to be taken for id.
func relatives(id string) *rapid.Generator[string] {
	name := ObjectName(id)
	return rapid.OneOf(
		responseIDs(),
		rapid.SampledFrom([]string{
			name, strings.ReplaceAll(name, ".", "_"), strings.Replace(name, ".", "_", 1),
			strings.ReplaceAll(id, "_", "."), strings.ReplaceAll(id, ".", "_"), strings.ReplaceAll(id, "_", "-"),
			strings.ToLower(id), strings.ToUpper(id), strings.TrimSpace(id), id + "\n", id + "_", "_" + id,
		}),
	)
}

// isDirect is the rule in other words than ObjectName's: every part between underscores is a DNS label of any length.
func isDirect(id string) bool {
	if len(id) > 253 {
		return false
	}
	parts := strings.Split(id, "_")
	for _, part := range parts {
		if part == "" || part[0] == '-' || part[len(part)-1] == '-' ||
			strings.ContainsFunc(part, func(r rune) bool { return r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') }) {
			return false
		}
	}
	return len(parts) == 1 || parts[0] != "sha256"
}

func hashed(id string) string {
	sum := sha256.Sum256([]byte(id))
	return "sha256." + strings.ToLower(strings.TrimRight(base32.StdEncoding.EncodeToString(sum[:]), "="))
}
