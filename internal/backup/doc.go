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

// Package backup copies the sessions and the conversations of a namespace into a file, and back into a namespace of the same or another
// cluster.
//
// # The format
//
// A file has one JSON value per line, each ended by a newline, in UTF-8:
//
//	{"format":"catena-sessions","version":2,"apiVersion":…,"exportedAt":…,"clusterUID":…,"namespace":…}
//	{"session":{"name":…,"labels":…,"annotations":…,"spec":…,"bodies":…,"cycle":…,"digest":…}}
//	{"conversation":{"name":…,"labels":…,"annotations":…,"spec":…,"digest":…}}
//	{"summary":{"name":…,"labels":…,"annotations":…,"spec":…,"digest":…}}
//	{"trailer":{"sessions":…,"conversations":…,"summaries":…,"sha256":…}}
//
// Version 2 guarantees the following. Writer writes nothing else, and Reader returns an error for anything else but version 1, which is the same
// without conversations and summaries:
//
//   - The first line is the header. exportedAt is the time of the API server just before the sessions were listed, and clusterUID
//     the UID of the namespace kube-system. apiVersion is that of the specs.
//   - Each object has a line: first the sessions, then the conversations, then their summaries. spec is the whole spec as the API server returned it, with fields that this build does not know. Of the
//     metadata, there are the name, the labels and the annotations: nothing that has a UID or that the API server sets. There is no
//     status: the operator writes it.
//   - The file is complete by itself: bodies has, in base64, exactly the bytes of the bodies that spec.snapshot refers to, wherever they
//     were stored, and they match its size and SHA-256. It is absent if the session has no snapshot, or if the snapshot could not be
//     read when the session was exported: such a session is restored with the reference as it is.
//   - All objects of a kind are those of one resource version, except those that were being deleted, and conversations in the state
//     Deleting. That of the summaries is the oldest, and that of the sessions the newest. So a turn that a conversation ends at is in the
//     file, unless it was missing or was deleted.
//   - The parent of a conversation is the turn at its head, and that of a summary its conversation. The names of a kind are unique, and a
//     parent precedes its children. A session on a cycle has no place in such an order: it is marked with cycle. The parent of an orphan
//     is not in the file, and a conversation can be an orphan too.
//   - A reservation is that of a turn in the file, whose parent is the base. Otherwise, the exported conversation ends at the base, and has
//     no reservation.
//   - digest is SHA-256(D ‖ SHA-256(C)), in lower-case hexadecimal. C is the spec as canonical JSON: keys sorted, no spaces, numbers as
//     a custom resource keeps them, and of the snapshot only format, sizeBytes and sha256, which do not depend on where it is
//     stored. D is the digest of the parent, or 32 zero bytes for an object without a parent in the file, for a session on a cycle, and
//     for an object whose name does not belong to its ID. So two equal digests mean that the whole histories are equal.
//   - The last line is the trailer. sha256 is the SHA-256 of all bytes before it. A file without a trailer is incomplete.
//
// Writer sorts nothing; Export writes the sessions by depth and then by name, so that an import can create those of one depth at once, and
// the others by name.
//
// # Memory
//
// For each object of a namespace, an export keeps its name, that of its parent and an offset, and an import its name and two hashes:
// a few hundred bytes. An export keeps the specs in temporary files without a name. Bodies of one session at a time are in memory,
// and an import holds at most inFlightBytes of lines, or a single longer one.
package backup
