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

package hostile_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/types"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/snapshot"
	"github.com/catena-dev/catena/internal/testutil"
)

// specFields are the fields of a spec, and an undeclared one.
var specFields = []string{
	"responseID", "previousResponseID", "conversationID", "createdAt", "completedAt", "responseStatus", "request", "response",
	"metadata", "snapshot", "immutable", "undeclared", "packed", "format",
}

// metadataFields are the fields of the metadata that a client can set or try to set, and an undeclared one. Garbage collection deletes
// an object for its owners.
var metadataFields = []string{
	"annotations", "labels", "finalizers", "generation", "uid", "creationTimestamp", "deletionTimestamp", "managedFields", "undeclared", "ownerReferences",
}

// values generate JSON values, valid or invalid.
var values = []func(text string, depth uint16, size uint32) string{
	func(text string, _ uint16, _ uint32) string { return text },
	func(text string, _ uint16, _ uint32) string { return quote(text) },
	func(_ string, depth uint16, _ uint32) string { return nested(int(depth%10_010) + 1) },
	func(_ string, depth uint16, _ uint32) string {
		n := int(depth%10_010) + 1
		return `{"input":` + strings.Repeat("[", n) + strings.Repeat("]", n) + "}"
	},
	func(text string, _ uint16, size uint32) string {
		return `{"input":` + quote(strings.Repeat(text+"x", int(size%1_600_000)/(len(text)+1))) + `}`
	},
	func(text string, _ uint16, _ uint32) string { return `{"input":` + text + `,"input":` + text + `}` },
	func(text string, _ uint16, _ uint32) string { return `{"output":[{"n":` + text + `}]}` },
	func(text string, _ uint16, size uint32) string {
		return fmt.Sprintf(`{"store":"Chunks","key":"%s","parts":1,"sizeBytes":%s,"storedBytes":%d,"sha256":"%s"}`,
			strings.Repeat("a", 26), text, size, strings.Repeat("0", 64))
	},
	func(text string, _ uint16, _ uint32) string { return inFormat2(text) },
	func(text string, depth uint16, size uint32) string {
		return inFormat2(snapshot.Pack(snapshot.Bodies{
			Request: []byte(text), Response: []byte(nested(int(depth%10_010) + 1)), Metadata: make([]byte, size%1_600_000),
		}))
	},
	func(text string, depth uint16, size uint32) string { // a reference to a snapshot with another value of a field
		fields := []string{`"store":"Chunks"`, `"format":1`, `"key":"` + strings.Repeat("a", 26) + `"`, `"parts":1`, `"sizeBytes":1`, `"storedBytes":1`, `"sha256":"` + strings.Repeat("0", 64) + `"`}
		name, _, _ := strings.Cut(fields[int(depth)%len(fields)], ":")
		if size%2 == 1 {
			text = quote(text)
		}
		fields[int(depth)%len(fields)] = name + ":" + text
		return "{" + strings.Join(fields, ",") + "}"
	},
}

// inFormat2 returns the value of packed, and the field that it requires.
func inFormat2(packed string) string { return quote(packed) + `,"format":2` }

func quote(text string) string {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err) // unreachable: it is a string
	}
	return string(quoted)
}

// FuzzObjects saves mutated sessions, and after each checks that a turn of another tenant is saved, gets a verdict and resolves.
func FuzzObjects(f *testing.F) {
	for _, seed := range []struct {
		field, value uint8
		text         string
		depth        uint16
		size         uint32
	}{
		{3, 1, "2026-01-01t00:00:00z", 0, 0},
		{4, 1, "2026-01-01T00:00:00Z\x00", 0, 0},
		{5, 1, "queued", 0, 0}, {5, 1, "in_progress", 0, 0}, {5, 1, "completed", 0, 0}, {5, 1, "incomplete", 0, 0},
		{5, 1, "failed", 0, 0}, {5, 1, "cancelled", 0, 0}, {5, 1, "\u0000\U0001f600", 0, 0}, {5, 0, "null", 0, 0},
		{0, 1, "resp_other", 0, 0}, {1, 1, "\xff\xfe", 0, 0}, {2, 0, "5", 0, 0}, {10, 0, `"true"`, 0, 0},
		{6, 2, "", 9_990, 0}, {7, 2, "", 9_996, 0}, {8, 2, "", 9_997, 0}, {11, 2, "", 9_998, 0}, {6, 3, "", 9_990, 0},
		{6, 4, "\u2028", 0, 1_400_000}, {7, 4, "\x00", 0, 1_000_000}, {8, 4, "<", 0, 1_400_000},
		{6, 4, "a", 0, 1_571_400}, {6, 4, "a", 0, 1_571_800}, {8, 4, "a", 0, 1_572_200}, // there is no room for a status
		{6, 5, `"\ud800"`, 0, 0}, {6, 5, "1e400", 0, 0}, {7, 6, "18446744073709551616", 0, 0}, {7, 6, "1.0000000000000000000001", 0, 0},
		{12, 8, "KLUv/SS4", 0, 0}, {12, 8, "\xff", 0, 0}, {12, 8, "", 0, 0}, {12, 9, `{"input":"hi"}`, 0, 0}, {12, 9, "", 9_999, 0}, {12, 9, "", 0, 524_000}, {12, 9, "", 0, 1_599_000},
		{9, 7, "9223372036854775808", 0, 1}, {9, 7, "1e30", 0, 1}, {9, 7, "-1", 0, 1}, {9, 7, "1.5", 0, 1},
		{14, 0, `{"sessions.catena.dev/omit-owner-reference":"true","k8s.io/initial-events-end":"true"}`, 0, 0},
		{14, 0, `{"a":"\ud800","a":"\u0000"}`, 0, 0}, {14, 4, "\u2028", 0, 250_000}, {14, 2, "", 9_997, 0}, {14, 0, `{"a":null}`, 0, 0},
		{15, 0, `{"a":"b"}`, 0, 0}, {16, 0, `["sessions.catena.dev/hold"]`, 0, 0}, {17, 0, "1e30", 0, 0}, {18, 1, "\x00", 0, 0},
		{19, 1, "2026-01-01t00:00:00z", 0, 0}, {20, 1, "2026-01-01T00:00:00Z", 0, 0}, {21, 0, `[{"manager":"m","fieldsV1":{"f:spec":{}}}]`, 0, 0},
		{22, 2, "", 9_997, 0},
		{23, 0, `[{"apiVersion":"sessions.catena.dev/v1alpha1","kind":"ResponseSession","name":"resp.none","uid":"none"}]`, 0, 0},
		{23, 0, `[{"apiVersion":"a/v9","kind":"\ud83d\ude00","name":"x","uid":"x","blockOwnerDeletion":true}]`, 0, 0},
		{13, 0, "2", 0, 0}, {13, 0, "3", 0, 0}, {13, 1, "2", 0, 0}, {13, 0, "2147483648", 0, 0},
		{9, 10, "Blob", 0, 1}, {9, 10, "2", 1, 0}, {9, 10, "2147483647", 1, 0}, {9, 10, "../other", 2, 1}, {9, 10, "2147483647", 3, 0},
		{9, 10, "1e30", 5, 0}, {9, 10, "\u0000", 6, 1},
	} {
		f.Add(seed.field, seed.value, seed.text, seed.depth, seed.size)
	}
	attacker, victim := env.NewNamespace(f), env.NewNamespace(f)
	created := 0
	f.Fuzz(func(t *testing.T, field, value uint8, text string, depth uint16, size uint32) {
		created++
		id := fmt.Sprintf("resp_%d", created)
		i := int(field) % (len(specFields) + len(metadataFields))
		mutation := values[int(value)%len(values)](text, depth, size)
		var object []byte
		if i < len(specFields) {
			object = session(id, fmt.Sprintf("%q:%s", specFields[i], mutation))
		} else {
			object = withMetadata(session(id, ok), metadataFields[i-len(specFields)], mutation)
		}
		err := create(t, attacker, object)
		wantUnharmed(t, victim)
		if mayBeGone := i == 0 || i == len(specFields)+len(metadataFields)-1; err != nil || mayBeGone {
			return // an object with another response ID, or with owners
		}
		raw, err := kubeclient.GetRaw(t.Context(), sessions, kubeclient.Sessions, types.NamespacedName{Namespace: attacker, Name: v1alpha1.ObjectName(id)})
		if err != nil {
			t.Fatal(err)
		}
		// All stored objects get a verdict, too, if etcd permits objects that are larger by a status.
		if len(raw) < 1_570_000 {
			wantVerdict(t, attacker, v1alpha1.ObjectName(id))
		}
	})
}

// withMetadata returns an object with a field of its metadata.
func withMetadata(object []byte, field, value string) []byte {
	return bytes.Replace(object, []byte(`"metadata":{`), fmt.Appendf(nil, `"metadata":{%q:%s,`, field, value), 1)
}

// conversationFields are the fields of a Conversation's spec, summaryFields those of a ConversationSummary's, and an undeclared one.
var (
	conversationFields = []string{
		"conversationID", "userID", "title", "systemPrompt", "metadata", "state", "headResponseID", "baseResponseID", "reservation", "forkedFrom",
		"parentConversationID", "hiddenItems", "summaries", "undeclared",
	}
	summaryFields = []string{"conversationID", "startTurn", "endTurn", "content", "tokenCount", "createdAt", "undeclared"}
)

// FuzzConversations creates mutated conversations and summaries, and after each checks that a conversation of another tenant gets a verdict.
func FuzzConversations(f *testing.F) {
	for _, seed := range []struct {
		field, value uint8
		text         string
		depth        uint16
		size         uint32
	}{
		{0, 1, "conv_other", 0, 0}, {1, 1, "\xff\xfe", 0, 0}, {2, 1, "\u0000\U0001f600", 0, 0}, {3, 10, "\u2028", 0, 900_000}, {3, 10, "a", 0, 1_571_400},
		{4, 2, "", 9_990, 0}, {4, 2, "", 9_997, 0}, {4, 5, `"\ud800"`, 0, 0}, {4, 4, "<", 0, 1_400_000}, {4, 4, "a", 0, 1_571_900}, {4, 0, "null", 0, 0},
		{5, 1, "Active", 0, 0}, {5, 1, "Archived", 0, 0}, {5, 1, "Deleting", 0, 0}, {5, 1, "\x00", 0, 0}, {6, 1, "resp_none", 0, 0}, {6, 10, "r", 0, 2_000},
		{8, 0, `{"durationSeconds":1e30}`, 0, 0}, {8, 0, `{"durationSeconds":3600,"renewals":9223372036854775807}`, 0, 0}, {8, 2, "", 9_997, 0},
		{9, 0, `{"conversationID":"conv_x","responseID":"resp_x"}`, 0, 0}, {10, 1, "conv_0", 0, 0}, {11, 0, `[{"responseID":"a","number":-1}]`, 0, 0},
		{11, 0, `[{"responseID":"a","number":2147483647},{"responseID":"a","number":2147483647}]`, 0, 0}, {11, 11, `{"responseID":"a","number":%d}`, 0, 10_001},
		{12, 0, `["0-1","0-1"]`, 0, 0}, {12, 11, `"%d-2000000000"`, 0, 256}, {12, 11, `"%d-2000000000"`, 0, 257}, {13, 2, "", 9_997, 0},
		{14, 1, "conv_other", 0, 0}, {15, 0, "-1", 0, 0}, {15, 0, "1e30", 0, 0}, {16, 0, "9223372036854775808", 0, 0}, {17, 10, "\u2028", 0, 60_000},
		{18, 0, "1.5", 0, 0}, {19, 1, "2026-01-01t00:00:00z", 0, 0}, {19, 1, "2026-01-01T00:00:60+99:99", 0, 0}, {20, 2, "", 9_997, 0},
		{21, 2, "", 9_997, 0}, {21, 4, "\u2028", 0, 250_000}, {23, 0, `["sessions.catena.dev/hold"]`, 0, 0}, {24, 0, "1e30", 0, 0},
		{28, 0, `[{"manager":"m","fieldsV1":{"f:spec":{}}}]`, 0, 0},
		{30, 0, `[{"apiVersion":"sessions.catena.dev/v1alpha1","kind":"Conversation","name":"conv.none","uid":"none"}]`, 0, 0},
	} {
		f.Add(seed.field, seed.value, seed.text, seed.depth, seed.size)
	}
	attacker, victim := env.NewNamespace(f), env.NewNamespace(f)
	values := append(slices.Clone(values),
		func(text string, _ uint16, size uint32) string {
			return quote(strings.Repeat(text+"x", int(size%1_600_000)/(len(text)+1)))
		},
		func(text string, _ uint16, size uint32) string { // a list
			items := make([]string, size%20_000)
			for i := range items {
				items[i] = strings.ReplaceAll(text, "%d", strconv.Itoa(i))
			}
			return "[" + strings.Join(items, ",") + "]"
		})
	created := 0
	f.Fuzz(func(t *testing.T, field, value uint8, text string, depth uint16, size uint32) {
		created++
		id := fmt.Sprintf("conv_%d", created)
		mutation := values[int(value)%len(values)](text, depth, size)
		i, resource, object := int(field)%(len(conversationFields)+len(summaryFields)+len(metadataFields)), kubeclient.Conversations, []byte(nil)
		switch {
		case i < len(conversationFields):
			object = withSpec(conversationObject(id, ""), conversationFields[i], mutation)
		case i < len(conversationFields)+len(summaryFields):
			resource, object = kubeclient.Summaries, withSpec(summaryObject(id), summaryFields[i-len(conversationFields)], mutation)
		default:
			object = withMetadata(conversationObject(id, ""), metadataFields[i-len(conversationFields)-len(summaryFields)], mutation)
		}
		err := createOf(t, resource, attacker, object)
		wantConversationUnharmed(t, victim)
		if resource != kubeclient.Conversations || err != nil || i == 0 || i == len(conversationFields)+len(summaryFields)+len(metadataFields)-1 {
			return // refused, or an object with another ID, or with owners
		}
		name := types.NamespacedName{Namespace: attacker, Name: v1alpha1.ObjectName(id)}
		testutil.Eventually(t, func(ctx context.Context) error {
			raw, err := kubeclient.GetRaw(ctx, sessions, kubeclient.Conversations, name)
			isDeleted := kubeclient.IsAnyGone(err) && conversationFields[min(i, len(conversationFields)-1)] == "state"
			if isDeleted || len(raw) > 1_570_000 || gjson.GetBytes(raw, `status.conditions.#(type=="HeadResolved")`).Exists() {
				return nil
			}
			return fmt.Errorf("%s has no verdict (%w)", id, err)
		})
	})
}

// withSpec returns an object, which ends with its spec, with a field of that, which replaces one that is there.
func withSpec(object []byte, field, value string) []byte {
	return fmt.Appendf(nil, "%s,%q:%s}}", bytes.TrimSuffix(object, []byte("}}")), field, value)
}

// summaryObject returns a summary of a conversation as JSON.
func summaryObject(id string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"metadata":{"name":%q},"spec":{"conversationID":%q,"startTurn":0,"endTurn":1,"content":"x"}}`,
		v1alpha1.GroupVersion, v1alpha1.ConversationSummaryKind, v1alpha1.SummaryName(id, v1alpha1.SummaryTurns(0, 1)), id)
}
