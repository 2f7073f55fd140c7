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
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// plainEvent is an event without its representation.
type plainEvent struct{ Raw, Name, Data, Others string }

// readEvents reads a stream of at most maxBytes an event, and reports what it holds at the end. It checks what it holds for each event.
func readEvents(t *testing.T, r io.Reader, maxBytes int64) (all []plainEvent, held int64, err error) {
	t.Helper()
	hold := func(bytes int64) error { held += bytes; return nil }
	reader := newEventReader(r, maxBytes, hold, func(bytes int64) { held -= bytes })
	for {
		e, err := reader.next()
		if err != nil {
			reader.release()
			return all, held, err
		}
		if want := int64(eventMemoryFactor * len(e.raw)); len(e.raw) > smallEvent && held < want {
			t.Errorf("%d bytes are held for an event of %d bytes, want at least %d", held, len(e.raw), want)
		}
		if unused := cap(e.raw) - len(e.raw); unused > 2*smallEvent && unused > len(e.raw)/4 {
			t.Errorf("an event of %d bytes has %d unused ones", len(e.raw), unused)
		}
		all = append(all, plainEvent{string(e.raw), e.name, e.data, string(e.others)})
	}
}

// splitEvents is readEvents for a stream that is a string.
func splitEvents(stream string) (all []plainEvent) {
	normal := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(stream)
	if strings.Contains(normal, "\n") {
		normal = strings.TrimPrefix(normal, "\ufeff")
	}
	var e plainEvent
	var data []string
	end := func() {
		e.Raw, e.Data = e.Raw+"\n", strings.Join(data, "\n")
		all = append(all, e)
		e, data = plainEvent{}, nil
	}
	lines := strings.Split(normal, "\n")
	for i, line := range lines {
		last := i == len(lines)-1
		if line == "" && !last {
			end()
			continue
		}
		if line != "" {
			e.Raw += line + "\n"
			field, value, _ := strings.Cut(line, ":")
			switch value = strings.TrimPrefix(value, " "); field {
			case "data":
				data = append(data, value)
			case "event":
				e.Name = value
			default:
				e.Others += line + "\n"
			}
		}
		if last && len(data) > 0 {
			end()
		}
	}
	return all
}

// FuzzEventReader compares the events of a stream with those of the same text, whatever pieces it arrives in.
func FuzzEventReader(f *testing.F) {
	for _, stream := range []string{
		"", "\n", "data", "data:", "data: x", "event: a\ndata: {}\n\n", ": comment\n\ndata: 1\ndata:  2\n\n", "event: a\nevent: b\ndata\n\n\n",
		"\ufeffdata: a\r\rdata: b\r\n\r\ndata: c", "\ufeffdata: a", "data: a\r\r\n\n", "id: 7\nretry: 1\nevent: e\nno colon\ndata: z\n\n",
		"data: " + strings.Repeat("long ", 2000) + "\r\n\r\n", strings.Repeat("data: x\r", 3000) + "\r",
	} {
		f.Add(stream)
	}
	f.Fuzz(func(t *testing.T, stream string) {
		want := splitEvents(stream)
		for name, r := range map[string]io.Reader{
			"whole": strings.NewReader(stream), "bytes": iotest.OneByteReader(strings.NewReader(stream)), "halves": iotest.HalfReader(strings.NewReader(stream)),
		} {
			got, held, err := readEvents(t, r, 1<<20)
			if !errors.Is(err, io.EOF) {
				t.Fatalf("%s: %v", name, err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
			if held != 0 {
				t.Errorf("%s: %d bytes are still held", name, held)
			}
		}
	})
}

// eventsOfSizes returns events of one line and of many lines, each a third larger than the one before.
func eventsOfSizes() string {
	var b strings.Builder
	for size := 1 << 10; size < 1<<19; size += size / 3 {
		b.WriteString("data: " + strings.Repeat("x", size) + "\n\n" + strings.Repeat("data: x\n", size/8) + "\n")
	}
	return b.String()
}

// linesOfCapacities returns lines that would each end where the memory of a slice ends, so that only their line feeds would need more.
func linesOfCapacities() string {
	lines := make([]byte, 0, 1<<10)
	for len(lines) < 1<<19 {
		for len(lines) < cap(lines) {
			lines = append(lines, ':')
		}
		lines = append(lines, '\n')
	}
	return string(lines)
}

// TestEventReaderLimit checks that an event is not read beyond the limit, wherever its lines end, and that its memory is held first.
func TestEventReaderLimit(t *testing.T) {
	cases := map[string]struct {
		stream  string
		max     int64
		wantErr error
	}{
		"exactly":         {"data: 12\n\n", 8, io.EOF},
		"one line":        {"data: 123\n\n", 8, errTooLarge},
		"two lines":       {"data:\nevent: 1\n\n", 13, errTooLarge},
		"without an end":  {strings.Repeat("x", 100_000), 99_999, errTooLarge},
		"the next one":    {"data: 1\n\ndata: 12345\n\n", 8, errTooLarge},
		"each within it":  {strings.Repeat("data: 12\n\n", 10), 8, io.EOF},
		"comments, too":   {": 1234567\n\n", 8, errTooLarge},
		"a large one":     {"data: " + strings.Repeat("x", 1<<20) + "\n\n", 2 << 20, io.EOF},
		"full buffers":    {linesOfCapacities() + "data\n\n", 1 << 20, io.EOF},
		"of any size":     {eventsOfSizes(), 1 << 20, io.EOF},
		"many tiny lines": {strings.Repeat("data\n", 1<<18), 1 << 20, errTooLarge},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if _, held, err := readEvents(t, strings.NewReader(tc.stream), tc.max); !errors.Is(err, tc.wantErr) || held != 0 {
				t.Errorf("got %v and %d bytes held, want %v", err, held, tc.wantErr)
			}
		})
	}
	full := errors.New("no memory")
	reader := newEventReader(strings.NewReader("data: "+strings.Repeat("x", 3*smallEvent)+"\n\n"), 1<<20, func(int64) error { return full }, func(int64) {})
	if _, err := reader.next(); !errors.Is(err, full) {
		t.Errorf("got %v, want that there is no memory", err)
	}
}

// TestReplaceOnce checks when a part of an event is replaced in place, and that the event and its data then agree.
func TestReplaceOnce(t *testing.T) {
	cases := map[string]struct {
		stream string
		want   *plainEvent
	}{
		"once":           {"event: old\ndata: a old b\n\n", &plainEvent{Raw: "event: old\ndata: a newer b\n\n", Name: "old", Data: "a newer b"}},
		"at the start":   {"data:old\n\n", &plainEvent{Raw: "data:newer\n\n", Data: "newer"}},
		"others":         {"id: old\ndata: old\n\n", &plainEvent{Raw: "id: old\ndata: newer\n\n", Data: "newer", Others: "id: old\n"}},
		"twice":          {"data: old, old\n\n", nil},
		"not there":      {"event: old\ndata: x\n\n", nil},
		"several lines":  {"data: a\ndata: old\n\n", nil},
		"without data":   {": old\n\n", nil},
		"across the end": {"data: a ol\nd: x\n\n", nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			nothing := func(int64) {}
			e, err := newEventReader(strings.NewReader(tc.stream), 100, func(int64) error { return nil }, nothing).next()
			if err != nil {
				t.Fatal(err)
			}
			before := plainEvent{string(e.raw), e.name, e.data, string(e.others)}
			want := &before
			if tc.want != nil {
				want = tc.want
			}
			if replaced := e.replaceOnce("old", "newer"); replaced != (tc.want != nil) {
				t.Errorf("got %t", replaced)
			}
			if diff := cmp.Diff(want, &plainEvent{string(e.raw), e.name, e.data, string(e.others)}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
