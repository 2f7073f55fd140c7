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

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// machine is where and of what a report was made. What is not known of a machine is missing.
type machine struct {
	Date    string `json:"date"`
	Version string `json:"version"`
	CPU     string `json:"cpu"`
	CPUs    int    `json:"cpus"`
	// MemoryGiB and Kernel are the machine's. SyncMS is the time, in milliseconds, to write 4 KiB and sync them to disk.
	MemoryGiB float64 `json:"memoryGiB,omitempty"`
	Kernel    string  `json:"kernel,omitempty"`
	SyncMS    float64 `json:"syncMS,omitempty"`
	// Programs are etcd and the kube-apiserver, with their versions.
	Programs []string `json:"programs,omitempty"`
}

// String describes the machine and the programs.
func (m *machine) String() string {
	parts := []string{fmt.Sprintf("%d CPUs: %s", m.CPUs, m.CPU)}
	if m.MemoryGiB > 0 {
		parts = append(parts, fmt.Sprintf("%.0f GiB of memory", m.MemoryGiB))
	}
	if m.Kernel != "" {
		parts = append(parts, "Linux "+m.Kernel)
	}
	if m.SyncMS > 0 {
		parts = append(parts, fmt.Sprintf("a write of 4 KiB is synced in %s ms", digits(m.SyncMS)))
	}
	return strings.Join(append(parts, m.Programs...), "; ")
}

// thisMachine describes this machine, and the programs of the control plane in a directory.
func thisMachine(ctx context.Context, controlPlane string) (machine, error) {
	m := machine{Date: time.Now().UTC().Format(time.DateOnly), CPUs: runtime.NumCPU()}
	commit, _ := exec.CommandContext(ctx, "git", "describe", "--tags", "--always", "--dirty").Output() // empty without git
	m.Version = strings.TrimSpace(string(commit))
	// Only Linux has these files.
	m.CPU = afterColon("/proc/cpuinfo", "model name")
	var kib float64
	if _, err := fmt.Sscanf(afterColon("/proc/meminfo", "MemTotal"), "%f kB", &kib); err == nil {
		m.MemoryGiB = kib / (1 << 20)
	}
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	m.Kernel = strings.TrimSpace(string(kernel))
	for _, name := range []string{"kube-apiserver", "etcd"} {
		if output, err := exec.CommandContext(ctx, filepath.Join(controlPlane, name), "--version").Output(); err == nil {
			first, _, _ := strings.Cut(string(output), "\n")
			m.Programs = append(m.Programs, strings.Replace(first, " Version:", "", 1))
		}
	}
	var err error
	m.SyncMS, err = syncTime()
	return m, err
}

// afterColon returns the first value with a name in a file of lines like "name: value".
func afterColon(path, name string) string {
	content, _ := os.ReadFile(path)
	for line := range strings.Lines(string(content)) {
		if key, value, _ := strings.Cut(line, ":"); strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// syncTime returns the median time of a write of 4 KiB that is synced to disk, in milliseconds.
func syncTime() (_ float64, err error) {
	file, err := os.CreateTemp("", "catena-bench-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, file.Close(), os.Remove(file.Name())) }()
	var took series
	err = interleave(100, timed(&took, func() error {
		_, err := file.Write(make([]byte, 4<<10))
		return errors.Join(err, file.Sync())
	}))
	return took.median(), err
}
