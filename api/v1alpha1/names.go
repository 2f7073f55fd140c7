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
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

const hashedNamePrefix = "sha256."

// The maximum lengths of names that are not hashes. The name of a summary has two numbers of up to ten digits at its end.
const (
	maxName     = validation.DNS1123SubdomainMaxLength
	maxBaseName = maxName - len("-2147483647-2147483647")
)

var lowerBase32 = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// ObjectName returns the metadata.name of the ResponseSession that holds a response ID, or of the Conversation that has a conversation ID.
// It is total and injective, so the API server itself prevents an ID from being stored twice in a namespace.
//
// The name is the ID with "_" replaced by "." ("resp_67cc" becomes "resp.67cc", a UUID stays the same) if that is a
// DNS-1123 subdomain of at most 253 characters and the ID has no "." and does not start with "sha256_"; otherwise it
// is "sha256." and the lower-case base32 of the ID's SHA-256, without padding. The CRDs refuse every other form.
func ObjectName(id string) string { return nameWithin(maxName, id) }

// SummaryTurns returns what stands for the turns from startTurn to before endTurn in spec.summaries of a Conversation.
func SummaryTurns(startTurn, endTurn int32) string { return fmt.Sprintf("%d-%d", startTurn, endTurn) }

// SummaryName returns the metadata.name of the ConversationSummary of some SummaryTurns. It is total and injective, like ObjectName, from
// which it differs in that the ID is hashed if its name would have more than 231 characters.
func SummaryName(conversationID, turns string) string {
	return nameWithin(maxBaseName, conversationID) + "-" + turns
}

// nameWithin is ObjectName for names of at most a number of characters.
func nameWithin(length int, id string) string {
	name := strings.ReplaceAll(id, "_", ".")
	if strings.Contains(id, ".") || strings.HasPrefix(id, "sha256_") || len(name) > length || len(validation.IsDNS1123Subdomain(name)) > 0 {
		sum := sha256.Sum256([]byte(id))
		return hashedNamePrefix + lowerBase32.EncodeToString(sum[:])
	}
	return name
}

// ResponseID returns the response ID whose ObjectName is name. It returns false if name is that of a hash, from which the ID
// cannot be derived.
func ResponseID(name string) (responseID string, ok bool) {
	if strings.HasPrefix(name, hashedNamePrefix) {
		return "", false
	}
	return strings.ReplaceAll(name, ".", "_"), true
}
