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

package subprocess

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// guardScript waits until its input closes, which happens when the process that started it ends for any reason. Then it
// kills every process that has one of the guarded arguments. It needs /proc; without it, no process is killed.
const guardScript = `
read -r _
for p in /proc/[0-9]*; do
	if tr '\0' '\n' <"$p/cmdline" | grep -qxF -e "$GUARDED_ARGS"; then
		kill -9 "${p#/proc/}"
	fi
done
if [ -n "$GUARDED_DIR" ]; then rm -rf "$GUARDED_DIR"; fi
`

// Guard starts a shell that cleans up if the current process ends without calling Kill on the returned Process: because
// it was killed, or panicked, as a test does that times out. The shell kills every process that has one of args on its
// command line, and removes the directory dir unless that is empty.
func Guard(dir string, args ...string) (*Process, error) {
	input, output, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = input.Close() }()
	cmd := exec.Command("/bin/sh", "-c", guardScript)
	cmd.Stdin = input
	cmd.Env = append(os.Environ(), "GUARDED_DIR="+dir, "GUARDED_ARGS="+strings.Join(args, "\n"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("unable to start the guard: %w", err)
	}
	p := &Process{cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.err = cmd.Wait()
		_ = output.Close() // open, and so kept from the garbage collector, until here
	}()
	return p, nil
}
