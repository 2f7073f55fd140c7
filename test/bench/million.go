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
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/catenatest"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/kube"
)

const (
	millionTurnsInChain = 50
	millionSmall        = 100_000
	millionLarge        = 1_000_000
)

// millionExperiment restarts the operator over more sessions than this machine's etcd can hold: a stand-in for the kube-apiserver streams
// them, and forwards everything else to the real one.
func millionExperiment(ctx context.Context, b *bench) error {
	chain, size, err := b.storedChain(ctx)
	if err != nil {
		return err
	}
	if err := b.operator.Stop(); err != nil {
		return err
	}
	runs := map[int]*restarts{millionSmall: {}, millionLarge: {}}
	for _, sessions := range []int{millionSmall, millionLarge, millionSmall} {
		took, resident, err := b.restartOver(ctx, chain, sessions)
		if err != nil {
			return err
		}
		runs[sessions].each.add(took.Seconds() * 1e6 / float64(sessions))
		runs[sessions].resident.add(resident)
	}
	small, large := runs[millionSmall], runs[millionLarge]
	small.each.Name = "with 100,000"
	b.compare(fmt.Sprintf("restart to ready with a million sessions of %.0f KiB, per session", size/1024), "µs",
		large.each, small.each, atMost(1))
	b.figure("resident memory of the operator with a million sessions", "MiB", atMost(700), large.resident.median()/(1<<20))
	b.figure("resident memory of the operator with 100,000 sessions", "MiB", atMost(150), small.resident.median()/(1<<20))
	b.figure("memory of each further session", "bytes", atMost(500), (large.resident.median()-small.resident.median())/(millionLarge-millionSmall))
	return nil
}

// storedChain saves a chain as a gateway does, and returns its objects, with their statuses, as the kube-apiserver sends them, and the average
// size of their bodies.
func (b *bench) storedChain(ctx context.Context) (chain [][]byte, size float64, err error) {
	if err := b.createNamespace(ctx, "million"); err != nil {
		return nil, 0, err
	}
	s, err := kube.Open(ctx, kube.Options{Config: b.env.Config, Namespace: "million"})
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = s.Close() }()
	turns, err := b.agentTurns(millionTurnsInChain, scaleSize)
	if err != nil {
		return nil, 0, err
	}
	previous := ""
	var ids []string
	for i := range millionTurnsInChain {
		turn := turns[i%len(turns)]
		turn.ResponseID, turn.PreviousResponseID = fmt.Sprintf("resp_%s%05d", placeholder, i), previous
		if err := s.Save(ctx, &turn, store.SaveOptions{}); err != nil {
			return nil, 0, err
		}
		previous = turn.ResponseID
		ids = append(ids, turn.ResponseID)
	}
	if err := b.waitForNone(ctx, v1alpha1.ResponseSessionKind, "million", "status.rootResponseID="); err != nil {
		return nil, 0, err
	}
	client, err := kubeclient.New(b.env.Config)
	if err != nil {
		return nil, 0, err
	}
	for _, id := range ids {
		raw, err := kubeclient.GetRaw(ctx, client, kubeclient.Sessions, types.NamespacedName{Namespace: "million", Name: v1alpha1.ObjectName(id)})
		if err != nil {
			return nil, 0, err
		}
		chain = append(chain, bytes.TrimSpace(raw))
	}
	return chain, averageSize(turns), nil
}

// restarts are the time until the operator was ready, in microseconds for each session, and its resident memory in bytes.
type restarts struct{ each, resident series }

// restartOver starts an operator that is sent copies of a chain, until it has been ready and idle for some time.
func (b *bench) restartOver(ctx context.Context, chain [][]byte, sessions int) (took time.Duration, resident float64, err error) {
	kubeconfig, closeServer, err := b.standIn(copies(chain, sessions))
	if err != nil {
		return 0, 0, err
	}
	defer closeServer()
	start := time.Now()
	options := catenatest.OperatorOptions{Args: append([]string{"--kubeconfig=" + kubeconfig}, operatorOptions.Args...)}
	if b.operator, err = b.env.StartOperator(ctx, options); err != nil {
		return 0, 0, err
	}
	took = b.operator.ReadyAt.Sub(start)
	if err := idle(ctx); err != nil {
		return 0, 0, err
	}
	resident, err = residentBytes(b.operator.PID())
	b.logf("%d sessions: ready after %s, %.0f MiB resident", sessions, took, resident/(1<<20))
	return took, resident, errors.Join(err, b.operator.Stop())
}

// placeholder stands for the number of a copy in the response IDs of the chain.
const placeholder = "9999999"

// copies returns the events of a watch that begins with copies of a chain, which differ in their response IDs and UIDs.
func copies(chain [][]byte, sessions int) func(w http.ResponseWriter) error {
	// The UID of each object of the chain becomes that of a copy by replacing its end.
	const end = len(placeholder)
	var events [][][]byte
	for _, object := range chain {
		text := string(object)
		for _, other := range chain {
			uid := gjson.GetBytes(other, "metadata.uid").Str
			text = strings.ReplaceAll(text, uid, uid[:len(uid)-end]+placeholder)
		}
		events = append(events, bytes.Split([]byte(`{"type":"ADDED","object":`+text+"}\n"), []byte(placeholder)))
	}
	return func(w http.ResponseWriter) error {
		for i := range sessions {
			number := fmt.Appendf(nil, "%0*d", end, i/len(chain))
			if _, err := w.Write(bytes.Join(events[i%len(chain)], number)); err != nil {
				return err
			}
		}
		_, err := fmt.Fprintln(w, `{"type":"BOOKMARK","object":{"kind":"ResponseSession","apiVersion":"sessions.catena.dev/v1alpha1",`+
			`"metadata":{"resourceVersion":"1","annotations":{"k8s.io/initial-events-end":"true"}}}}`)
		return errors.Join(err, http.NewResponseController(w).Flush())
	}
}

// standIn starts a server that answers the watch of all sessions with events, and forwards other requests to the kube-apiserver with the
// operator's rights. It returns a kubeconfig for it.
func (b *bench) standIn(events func(http.ResponseWriter) error) (kubeconfig string, closeServer func(), err error) {
	config, err := b.env.ConfigFor("system:serviceaccount:catena-system:catena", "system:serviceaccounts", "system:serviceaccounts:catena-system")
	if err != nil {
		return "", nil, err
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return "", nil, err
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		return "", nil, err
	}
	target.Scheme = "https"
	forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: transport, FlushInterval: -1}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		watch, _ := strconv.ParseBool(r.URL.Query().Get("watch"))
		if !watch || !strings.HasSuffix(r.URL.Path, "/v1alpha1/"+kubeclient.Sessions) {
			forward.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("sendInitialEvents") == "true" && events(w) != nil {
			return // the operator has ended
		}
		<-r.Context().Done()
	}))
	dir, err := os.MkdirTemp("", "catena-bench-")
	if err != nil {
		return "", nil, err
	}
	kubeconfig = filepath.Join(dir, "kubeconfig")
	content := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":%q}}],
"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],"users":[{"name":"u","user":{}}]}`, server.URL)
	return kubeconfig, func() {
		server.CloseClientConnections()
		server.Close()
		_ = os.RemoveAll(dir)
	}, os.WriteFile(kubeconfig, []byte(content), 0o600)
}
