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

package controllers_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
)

const nameRule = "`metadata.name` must be derived from `spec.responseID`: the ID with \"_\" replaced by \".\" if that is a " +
	"DNS subdomain name and the ID has no \".\" and does not start with \"sha256_\", otherwise \"sha256.\" and the lower-case " +
	"base32 SHA-256 of the ID without padding"

func TestCRDNames(t *testing.T) {
	const uuid = "6f8e4b1c-0d8e-4c89-b3c1-1f6d9d9a3f10"
	a := func(n int) string { return strings.Repeat("a", n) }
	hash := v1alpha1.ObjectName // for IDs that need it
	tests := map[string]struct{ id, name, wantErr string }{
		"underscore becomes dot":      {"resp_67cc", "resp.67cc", ""},
		"UUID is kept":                {uuid, uuid, ""},
		"253 characters are kept":     {a(250) + "_bc", a(250) + ".bc", ""},
		"254 characters are hashed":   {a(250) + "_bcd", hash(a(250) + "_bcd"), ""},
		"512 characters are hashed":   {a(512), hash(a(512)), ""},
		"upper case is hashed":        {"resp_67CC", hash("resp_67CC"), ""},
		"slash is hashed":             {"resp/67cc", hash("resp/67cc"), ""},
		"unicode is hashed":           {"antwort_日本", hash("antwort_日本"), ""},
		"dot is hashed":               {"resp.67cc", hash("resp.67cc"), ""},
		"sha256_ is hashed":           {"sha256_" + a(52), hash("sha256_" + a(52)), ""},
		"double underscore is hashed": {"a__b", hash("a__b"), ""},
		"last underscore is hashed":   {"ab_", hash("ab_"), ""},
		"last newline is hashed":      {"resp_68\n", hash("resp_68\n"), ""},

		"name of another ID":          {"resp_67cd", "resp.67ce", nameRule},
		"underscore becomes hyphen":   {"resp_67cd", "resp-67cd", nameRule},
		"unnecessary hash":            {"resp_67cd", hash("resp/67cd"), nameRule},
		"hashed UUID":                 {uuid[:35] + "1", hash("A"), nameRule},
		"upper case is lowercased":    {"resp_67CE", "resp.67ce", nameRule},
		"slash becomes dot":           {"resp/67ce", "resp.67ce", nameRule},
		"dot is kept":                 {"resp.67cf", "resp.67cf", nameRule},
		"sha256_ becomes sha256.":     {"sha256_" + a(51), "sha256." + a(51), nameRule},
		"newline is dropped":          {"resp_69\n", "resp.69", nameRule},
		"hash is too short":           {"resp/67cc", hash("resp/67cc")[:58], nameRule},
		"hash has invalid letters":    {"resp/67cc", "sha256." + a(51) + "1", nameRule},
		"prefix before the hash":      {"resp/67cc", "x" + hash("resp/67cc"), nameRule},
		"suffix after the hash":       {"resp/67cc", hash("resp/67cc") + ".b", nameRule},
		"ID that looks like a hash":   {hash("A"), hash("A"), ""}, // the controller reports that this is not the hash of hash("A")
		"invalid object name":         {"resp_67cd", "resp_67cd", "a lowercase RFC 1123 subdomain must consist of"},
		"unhashed name of 254":        {a(254), a(254), "must be no more than 253"},
		"no underscore needs no hash": {"resp67cc", "resp67cc", ""},
	}
	ns := env.NewNamespace(t)
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			object := unstructuredTurn(ns, tc.name, specWith(t, tc.id, `{}`))
			wantResult(t, env.Client.Create(t.Context(), object), tc.wantErr)
		})
	}
}

// TestCRDNamesAreUnique: the API server itself prevents an ID from being saved twice.
func TestCRDNamesAreUnique(t *testing.T) {
	ns := env.NewNamespace(t)
	for _, id := range []string{"resp_67cc", "resp/67cc"} {
		create(t, turn(ns, id))
		if err := env.Client.Create(t.Context(), turn(ns, id)); !apierrors.IsAlreadyExists(err) {
			t.Errorf("second create of %q: got %v, want AlreadyExists", id, err)
		}
	}
}

// TestCRDNamesMatchObjectName: the rule in the CRD accepts the name that ObjectName returns, and no other that it can distinguish.
func TestCRDNamesMatchObjectName(t *testing.T) {
	ns := env.NewNamespace(t)
	ids := rapid.OneOf(
		rapid.StringMatching(`resp_[0-9a-f]{2,48}`),
		rapid.StringOfN(rapid.RuneFrom([]rune("ab09-_.A")), 1, 8, -1),
		rapid.StringMatching(`(sha256)[_.]?[a-z2-7]{0,3}`),
		rapid.StringMatching(`[a-z]{250}[-a-z_]{0,5}[a-z]`),
		rapid.StringN(1, 20, -1).Filter(utf8.ValidString),
	)
	accepts := func(t *rapid.T, id, name string) bool {
		object := unstructuredTurn(ns, name, map[string]any{"responseID": id, "responseStatus": "completed"})
		err := env.Client.Create(t.Context(), object, client.DryRunAll)
		if err != nil && !apierrors.IsInvalid(err) {
			t.Fatalf("create %q as %q: %v", id, name, err)
		}
		return err == nil
	}
	rapid.Check(t, func(t *rapid.T) {
		// Two IDs per check: 200 in total.
		for _, id := range rapid.SliceOfN(ids, 2, 2).Draw(t, "ids") {
			name := v1alpha1.ObjectName(id)
			if !accepts(t, id, name) {
				t.Errorf("%q is refused under its name %q", id, name)
			}
			// The other form: CEL can distinguish it from the right one, but not one hash from another.
			other := "sha256." + strings.Repeat("a", 52)
			if strings.HasPrefix(name, "sha256.") {
				other = strings.Trim(strings.ToLower(strings.ReplaceAll(id, "_", ".")), ".-") + "x"
			}
			if accepts(t, id, other) {
				t.Errorf("%q is accepted under %q, want %q", id, other, name)
			}
		}
	})
}
