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
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// watchedFile is a file whose last valid content is in use. It is reopened for every check, to follow the symbolic links that
// are swapped when a mounted Secret changes.
type watchedFile struct {
	name, path string
	// load starts using the content, or returns an error and keeps the previous content.
	load func(content []byte) error

	loaded [sha256.Size]byte // the SHA-256 of the content in use
	failed string            // the error of the last reload, if it failed
}

// reload loads the content if it has changed.
func (f *watchedFile) reload() error {
	content, err := os.ReadFile(f.path)
	if err != nil {
		return fmt.Errorf("unable to read the %s file: %w", f.name, err)
	}
	sum := sha256.Sum256(content)
	if sum == f.loaded {
		return nil
	}
	if err := f.load(content); err != nil {
		return fmt.Errorf("unable to use the %s file %s: %w", f.name, f.path, err)
	}
	f.loaded = sum
	return nil
}

// watchFiles reloads the files until ctx is done.
func (g *Gateway) watchFiles(ctx context.Context) {
	ticker := time.NewTicker(g.options.ReloadInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			g.reloadFiles()
		}
	}
}

// reloadFiles reloads the files once. It logs when a file becomes unusable or usable again, not every failure.
func (g *Gateway) reloadFiles() {
	for _, file := range g.files {
		before, failed := file.loaded, ""
		if err := file.reload(); err != nil {
			g.metrics.reloadFailures.WithLabelValues(file.name).Inc()
			failed = err.Error()
		}
		switch {
		case failed != "" && failed != file.failed:
			g.log.Error("unable to reload a file, keeping its last valid content", "file", file.name, "error", failed)
		case failed == "" && (file.failed != "" || before != file.loaded):
			g.log.Info("file loaded", "file", file.name)
		}
		file.failed = failed
	}
}

// secret is a key that can be reloaded.
type secret struct {
	value atomic.Pointer[string]
}

// load starts using a key. It trims surrounding white space.
func (s *secret) load(content []byte) error {
	key := string(bytes.TrimSpace(content))
	if key == "" {
		return errors.New("must not be empty")
	}
	if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errors.New("must be printable ASCII without spaces")
	}
	s.value.Store(&key)
	return nil
}

func (s *secret) get() string { return *s.value.Load() }
