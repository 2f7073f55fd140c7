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
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"syscall"
)

// FreePorts returns n different ports of the loopback interface. The first one is first, unless that is 0; nothing
// listens on the others. They are below the range from which Linux assigns ports, so that no other program gets one of
// them by chance before it is used, or while the program that uses it restarts. Two calls of FreePorts may return the
// same port, with a probability of one in some thousands.
func FreePorts(n, first int) ([]int, error) {
	var ports []int
	if first != 0 {
		ports = append(ports, first)
	}
	for len(ports) < n {
		port := 10_000 + rand.IntN(20_000)
		if slices.Contains(ports, port) {
			continue
		}
		listener, err := net.Listen("tcp", Loopback(port))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("unable to find a free port: %w", err)
		}
		_ = listener.Close() // nothing was accepted
		ports = append(ports, port)
	}
	return ports, nil
}

// Loopback returns the address of a port of the loopback interface.
func Loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
