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

// Package logging is the log of all programs, behind the same flag: lines of JSON.
package logging

import (
	"io"
	"log/slog"

	"github.com/spf13/pflag"
)

// AddFlag adds --log-level, which sets the level for NewHandler.
func AddFlag(flags *pflag.FlagSet, level *slog.Level) {
	flags.TextVar(level, "log-level", *level, "Minimum log level: DEBUG, INFO, WARN or ERROR.")
}

// NewHandler returns a handler that writes records of at least a level to w. A logr logger has the level INFO for V(0), and
// DEBUG for V(4).
func NewHandler(w io.Writer, level slog.Level) slog.Handler {
	return slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level})
}
