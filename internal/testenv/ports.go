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

package testenv

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"syscall"
)

// FreePorts returns n different ports of the loopback interface. The first one is that which is given, unless that is 0;
// on the others nobody listens. They are below the ports that Linux gives to connections and to listeners that take any:
// nobody gets them by chance before they are used, or while a program that uses them is started again, but another call
// of this function, once in some thousands.
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
		listener, err := net.Listen("tcp", loopback(port))
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

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
