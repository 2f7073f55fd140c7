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

// Package requestid carries the ID of a request through the programs that serve it, so that their logs can be joined.
package requestid

import (
	"context"
	"fmt"
	"regexp"
)

// Header is the HTTP header with the ID.
const Header = "X-Request-Id"

// MaxLength is the length of the longest valid ID.
const MaxLength = 64

// ids are the valid IDs. They are written to logs, and come from clients.
var ids = regexp.MustCompile(fmt.Sprintf(`^[A-Za-z0-9._-]{1,%d}$`, MaxLength))

// IsValid reports whether an ID has from 1 to MaxLength letters, digits, dots, hyphens and underscores.
func IsValid(id string) bool { return ids.MatchString(id) }

type key struct{}

// NewContext returns a context with an ID. If the ID is not valid, it returns ctx.
func NewContext(ctx context.Context, id string) context.Context {
	if !IsValid(id) {
		return ctx
	}
	return context.WithValue(ctx, key{}, id)
}

// FromContext returns the ID of a context, or "" if it has none.
func FromContext(ctx context.Context) string {
	id, _ := ctx.Value(key{}).(string)
	return id
}
