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

package controllers

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
	"time"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/history"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/operator/conversations"
	"github.com/catena-dev/catena/internal/operator/resolve"
	"github.com/catena-dev/catena/internal/operator/sessions"
	"github.com/catena-dev/catena/store/driver"
)

const (
	// maxTurnsPerRead is the number of turns whose items are in memory at once to add up the figures of a history.
	maxTurnsPerRead = 64
	// turnsPerStatus is the number of turns that are added up for one write of a status. The rest of a long history follows with the next
	// writes.
	turnsPerStatus = 1024
	// figuresTurn is how long a worker begins to read turns of one history before the status is written, and it is the turn of another one.
	figuresTurn = 5 * time.Second
	// FiguresTimeout is how long it may read them, so that there is time to write what it has added.
	FiguresTimeout = ReconcileTimeout / 2
	// behindRetry is when figures that are behind are looked at again, at the earliest.
	behindRetry = time.Second
	// previewLength is the number of characters of a preview.
	previewLength = 100
)

// ResolveFunc returns the history of a turn within the shares of its namespace; see resolve.Resolver.
type ResolveFunc func(ctx context.Context, namespace, responseID string, minVersion uint64, query resolve.Query) (*resolve.Result, error)

// path returns the turns of the history that a verdict is about, oldest first, or nil if it is empty or broken, or longer than any history that can
// be read.
func (r *ConversationReconciler) path(c *conversations.Record, v conversations.Verdict) []*sessions.Record {
	if v.Last == "" || v.Turns > driver.MaxDepthLimit {
		return nil
	}
	return r.Sessions.Path(c.Namespace, v.Last, chain.WalkOptions{MaxDepth: v.Turns})
}

// addFigures adds to a status the figures of the turns of a path. If there is none, they remain those that are stored. It reports whether they are
// complete. Otherwise, they are those of the turns that the historyRevision of the status says.
func (r *ConversationReconciler) addFigures(
	ctx context.Context, c *conversations.Record, path []*sessions.Record, status *v1alpha1.ConversationStatus,
) (complete bool, err error) {
	wanted := status.HistoryRevision
	if wanted == "" {
		return true, nil
	}
	stored, hidden, err := r.stored(ctx, c)
	if err != nil {
		return false, err
	}
	known := len(path)
	if wanted != stored.HistoryRevision {
		known = knownTurns(c, path, stored.HistoryRevision)
	}
	if known > 0 && stored.Preview == "" && meta.IsStatusConditionFalse(stored.Conditions, v1alpha1.ConditionHeadResolved) {
		known = 0 // the preview was removed, and is that of one of the known turns
	}
	if known > 0 || path == nil {
		status.Items, status.Usage, status.Model, status.Preview = stored.Items, stored.Usage, stored.Model, stored.Preview
	}
	if path == nil {
		status.HistoryRevision = stored.HistoryRevision
		if len(hidden) > 0 || status.Conditions[0].Reason == v1alpha1.ReasonParentNotFound {
			status.Preview = "" // it may be hidden, or its turn the one that was deleted
		}
		return true, nil
	}
	known = r.addTurns(ctx, path[:min(len(path), known+turnsPerStatus)], known, status, hidden)
	status.HistoryRevision = historyRevision(c, path[:known])
	return known == len(path), nil
}

// hiddenItems are the hidden items of a conversation.
type hiddenItems map[v1alpha1.HiddenItem]bool

// stored returns the status that a conversation has now, and its hidden items, without decoding the rest of the object, which Go may be
// unable to.
func (r *ConversationReconciler) stored(ctx context.Context, c *conversations.Record) (*v1alpha1.ConversationStatus, hiddenItems, error) {
	raw, err := kubeclient.GetRaw(ctx, r.Live, kubeclient.Conversations, c.NamespacedName())
	if err != nil {
		return nil, nil, fmt.Errorf("unable to read the figures of the conversation: %w", err)
	}
	hidden := hiddenItems{}
	for _, item := range gjson.GetBytes(raw, "spec.hiddenItems").Array() {
		hidden[v1alpha1.HiddenItem{ResponseID: item.Get("responseID").Str, Number: int32(item.Get("number").Int())}] = true
	}
	return conversations.DecodeStatus(gjson.GetBytes(raw, "status")), hidden, nil
}

// addTurns adds the figures of the turns of a path from an index on, and returns the index of the first one that it has not added: one that has
// just changed, or could not be read, or for which there was no time. It reads one turn first and then more at once, so that it adds some
// however slowly they are read, and fewer than were too large to be read at once. A turn that alone is too large has no figures.
func (r *ConversationReconciler) addTurns(
	ctx context.Context, path []*sessions.Record, from int, status *v1alpha1.ConversationStatus, hidden hiddenItems,
) (next int) {
	end := time.Now().Add(figuresTurn)
	ctx, cancel := context.WithTimeout(ctx, FiguresTimeout)
	defer cancel()
	next = from
	for turns, most := 1, maxTurnsPerRead; next < len(path) && time.Now().Before(end); turns = min(2*turns, most) {
		turns = min(turns, len(path)-next)
		switch err := r.read(ctx, path[next:next+turns], status, hidden); {
		case err == nil || errors.Is(err, resolve.ErrTooLarge) && turns == 1:
			next += turns
		case errors.Is(err, resolve.ErrTooLarge):
			most = turns / 2
		default:
			log.FromContext(ctx).V(1).Info("The figures of the conversation are behind", "turn", path[next].Turn.ID, "err", err)
			return next
		}
	}
	return next
}

// read adds the figures of turns, unless they cannot be read together.
func (r *ConversationReconciler) read(
	ctx context.Context, turns []*sessions.Record, status *v1alpha1.ConversationStatus, hidden hiddenItems,
) error {
	last := turns[len(turns)-1]
	query := resolve.Query{WalkOptions: chain.WalkOptions{MaxDepth: len(turns), Last: len(turns)}}
	result, err := r.Resolve(ctx, last.Namespace, last.Turn.ID, 0, query)
	if err != nil {
		return err
	}
	defer result.Release()
	for _, turn := range result.Turns {
		addTurn(status, turn, hidden)
	}
	return nil
}

func addTurn(status *v1alpha1.ConversationStatus, turn history.TurnItems, hidden hiddenItems) {
	status.Items += int64(turn.Items.Len())
	if used := turn.Items.Figures.Usage; used != (chain.Usage{}) {
		sum := v1alpha1.ConversationUsage{}
		if status.Usage != nil {
			sum = *status.Usage
		}
		sum.InputTokens += used.InputTokens
		sum.OutputTokens += used.OutputTokens
		sum.TotalTokens += used.TotalTokens
		status.Usage = &sum
	}
	if model := turn.Items.Figures.Model; model != "" {
		status.Model = model
	}
	if status.Preview == "" {
		status.Preview = turn.Items.UserText(previewLength, func(item int) bool {
			return hidden[v1alpha1.HiddenItem{ResponseID: turn.ResponseID, Number: int32(item)}]
		})
	}
}

// historyRevisionOf returns the revision that the status of a conversation is to have. It remains that of an earlier history while this one is
// broken.
func historyRevisionOf(c *conversations.Record, v conversations.Verdict, path []*sessions.Record) string {
	switch {
	case path != nil:
		return historyRevision(c, path)
	case v.Last == "" && v.Status != metav1.ConditionFalse:
		return ""
	}
	return c.HistoryRevision
}

// historyRevision returns the revision of turns, which changes with each of them and with the hidden items, but not if one is overwritten:
// then a turn that flips between two statuses would have the statuses of all conversations rewritten that end after it.
func historyRevision(c *conversations.Record, path []*sessions.Record) string {
	sum := newRevision(c)
	for _, turn := range path {
		sum.add(turn)
	}
	return sum.String()
}

// knownTurns returns how many turns of a path, from the root on, have a revision, or 0.
func knownTurns(c *conversations.Record, path []*sessions.Record, revision string) int {
	sum := newRevision(c)
	for i, turn := range path {
		if sum.add(turn); sum.String() == revision {
			return i + 1
		}
	}
	return 0
}

// revision is a running hash of the hidden items and the UIDs of turns. A tenant that finds a collision gets wrong figures, of its own
// conversation.
type revision struct{ hash.Hash }

func newRevision(c *conversations.Record) revision {
	r := revision{fnv.New128a()}
	if c.Hidden != 0 {
		_, _ = r.Write(binary.BigEndian.AppendUint64(nil, c.Hidden))
	}
	return r
}

func (r revision) add(turn *sessions.Record) {
	_, _ = r.Write(turn.UID[:])
}

func (r revision) String() string { return base64.RawURLEncoding.EncodeToString(r.Sum(nil)) }
