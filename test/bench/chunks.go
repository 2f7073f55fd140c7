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
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/snapshot"
)

// chunkBytes is the size of the chunks that the chunks experiment stores.
const chunkBytes = 256 << 10

// chunksExperiment lists the metadata of chunks, as a sweep does, and compares with a list of the chunks: the CPU time of the
// kube-apiserver and etcd, and the bytes that etcd sends.
func chunksExperiment(ctx context.Context, b *bench) error {
	if err := b.createNamespace(ctx, "chunks"); err != nil {
		return err
	}
	c, err := kubeclient.New(b.env.Config)
	if err != nil {
		return err
	}
	server, err := childProcess("kube-apiserver")
	if err != nil {
		return err
	}
	etcd, err := childProcess("etcd")
	if err != nil {
		return err
	}
	empty, err := residentBytes(server)
	if err != nil {
		return err
	}
	b.logf("saving %d chunks of 256 KiB", b.chunks)
	if err := b.fillChunks(ctx, c); err != nil {
		return err
	}
	full, err := residentBytes(server)
	if err != nil {
		return err
	}
	stored := float64(b.chunks) * chunkBytes
	metadata, whole := &listCosts{name: "metadata, as a sweep lists"}, &listCosts{name: "whole chunks"}
	err = interleave(b.rounds,
		func() error { return metadata.measure(server, etcd, func() error { return listChunkMetadata(ctx, c) }) },
		func() error {
			return whole.measure(server, etcd, func() error { return listChunks(ctx, c) })
		},
	)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("list %d chunks as a sweep does", b.chunks)
	b.compare(what, "ms", metadata.series(metadata.took), whole.series(whole.took), nil)
	b.compare(what+": CPU time of kube-apiserver and etcd", "ms", metadata.series(metadata.cpu), whole.series(whole.cpu), nil)
	b.compare(what+": sent by etcd", "MiB", metadata.series(metadata.fromEtcd), whole.series(whole.fromEtcd), nil)
	b.compare(what+": sent by the kube-apiserver", "MiB", metadata.series(metadata.sent), whole.series(whole.sent), nil)
	b.figure("memory of the kube-apiserver for each byte in chunks", "bytes", atMost(4), (full-empty)/stored)
	return nil
}

// fillChunks stores chunks of incompressible data as the library does.
func (b *bench) fillChunks(ctx context.Context, c rest.Interface) error {
	store := snapshot.NewChunkStore(c)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range b.chunks {
		group.Go(func() error {
			body := make([]byte, chunkBytes)
			_, _ = rand.NewChaCha8([32]byte{byte(i), byte(i >> 8), byte(i >> 16)}).Read(body) // never fails
			_, err := snapshot.Write(ctx, store, types.NamespacedName{Namespace: "chunks", Name: fmt.Sprintf("resp.%d", i)}, snapshot.Bodies{Request: body})
			return err
		})
	}
	return group.Wait()
}

func listChunkMetadata(ctx context.Context, c rest.Interface) error {
	for _, err := range snapshot.NewChunkStore(c).List(ctx) {
		if err != nil {
			return err
		}
	}
	return nil
}

// listChunks lists chunks with their data, in pages of the same size. It does not decode them, because only the server's
// costs are measured.
func listChunks(ctx context.Context, c rest.Interface) error {
	for next := ""; ; {
		page, err := c.Get().Resource(kubeclient.Chunks).Param("limit", "500").Param("continue", next).Do(ctx).Raw()
		if err != nil {
			return err
		}
		if next = gjson.GetBytes(page, "metadata.continue").Str; next == "" {
			return nil
		}
	}
}

// listCosts are the costs of lists, one sample each: milliseconds and MiB.
type listCosts struct {
	name                      string
	took, cpu, fromEtcd, sent []float64
}

func (l *listCosts) series(samples []float64) series { return series{Name: l.name, Samples: samples} }

func (l *listCosts) measure(server, etcd int, list func() error) error {
	before, err := usage(server, etcd)
	if err != nil {
		return err
	}
	start := time.Now()
	if err := list(); err != nil {
		return fmt.Errorf("%s: %w", l.name, err)
	}
	took := time.Since(start)
	after, err := usage(server, etcd)
	if err != nil {
		return err
	}
	const mib = 1 << 20
	l.took = append(l.took, float64(took.Milliseconds()))
	l.cpu = append(l.cpu, after[0].cpu+after[1].cpu-before[0].cpu-before[1].cpu)
	l.sent = append(l.sent, (after[0].written-before[0].written)/mib)
	l.fromEtcd = append(l.fromEtcd, (after[1].written-before[1].written)/mib)
	return nil
}

// processUsage is the resource usage of a process: milliseconds of CPU, and bytes written to files and connections.
type processUsage struct{ cpu, written float64 }

func usage(pids ...int) ([]processUsage, error) {
	var all []processUsage
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return nil, err
		}
		_, rest, _ := bytes.Cut(stat, []byte(") "))
		fields := strings.Fields(string(rest))
		const userTime, systemTime, tick = 11, 12, 10 // of 10 ms
		user, userErr := strconv.ParseFloat(fields[userTime], 64)
		system, systemErr := strconv.ParseFloat(fields[systemTime], 64)
		io, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
		if err := errors.Join(userErr, systemErr, err); err != nil {
			return nil, err
		}
		p := processUsage{cpu: tick * (user + system)}
		_, written, _ := strings.Cut(string(io), "wchar: ")
		if _, err := fmt.Sscan(written, &p.written); err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// childProcess returns the ID of a program that this process has started.
func childProcess(name string) (int, error) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		var pid, parent int
		before, after, _ := bytes.Cut(stat, []byte(" ("+name+") "))
		var state string
		if _, err := fmt.Sscan(string(before), &pid); err != nil {
			continue
		}
		if _, err := fmt.Sscan(string(after), &state, &parent); err == nil && parent == os.Getpid() {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("%s is not running", name)
}
