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
	"time"

	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/history"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/operator/conversations"
	"github.com/catena-dev/catena/internal/operator/resolve"
	"github.com/catena-dev/catena/internal/operator/sessions"
)

const (
	// maxTurnsPerRead is the number of turns whose items are in memory at once to add up the figures of a history.
	maxTurnsPerRead = 64
	// turnsPerStatus is the number of turns that are added up for one write of a status. The rest of a long history follows with the next
	// writes.
	turnsPerStatus = 1024
	// figuresTurn is how long a worker keeps reading turns of one history before it writes the status and goes on to another one. It is short
	// because a few namespaces can occupy all workers.
	figuresTurn = 2 * time.Second
	// FiguresTimeout is how long it may read them, so that there is time to write what it has added.
	FiguresTimeout = ReconcileTimeout / 2
	// behindRetry is when figures that are behind are looked at again, at the earliest.
	behindRetry = time.Second
	// previewLength is the number of characters of a preview.
	previewLength = 100
)

// ResolveFunc returns the history of a turn within the shares of its namespace; see resolve.Resolver.
type ResolveFunc func(ctx context.Context, namespace, responseID string, minVersion uint64, query resolve.Query) (*resolve.Result, error)

// errHistoryChanged is returned for a history that has ceased to resolve since its verdict.
var errHistoryChanged = errors.New("the history has changed")

// addFigures adds to a status the figures of the turns of a history. If it cannot be read, even with incomplete turns, they remain those that are
// stored, without the preview of other turns, which may be hidden or deleted. It reports whether they are complete. Otherwise, they are those of
// the turns that the historyRevision of the status says.
func (r *ConversationReconciler) addFigures(
	ctx context.Context, c *conversations.Record, v conversations.Verdict, status *v1alpha1.ConversationStatus,
) (complete bool, err error) {
	if status.HistoryRevision == "" {
		return true, nil
	}
	stored, hidden, err := r.stored(ctx, c)
	if err != nil {
		return false, err
	}
	keep := func() {
		status.Items, status.Usage, status.Model, status.Preview = stored.Items, stored.Usage, stored.Model, stored.Preview
	}
	lineage := lineageOf(c, stored.HistoryRevision)
	known, path := r.Sessions.PathAfter(c.Namespace, v.Last, lineage)
	switch {
	case v.Lineage == 0:
		keep()
		status.HistoryRevision = stored.HistoryRevision
		mayBeGone := len(hidden) > 0 || v.Turns == 0
		if known == 0 && mayBeGone && stored.Preview != "" {
			status.Preview, status.HistoryRevision = "", withoutPreview
		}
		return true, nil
	case known > 0:
		keep()
	case len(path) == 0:
		return false, errHistoryChanged
	default:
		lineage = 0
	}
	added := r.addTurns(ctx, path[:min(len(path), turnsPerStatus)], status, hidden)
	for _, turn := range path[:added] {
		lineage = chain.Lineage(lineage, turn.UID.Identity())
	}
	status.HistoryRevision = historyRevision(c, lineage)
	return lineage == v.Lineage, nil
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

// addTurns adds the figures of turns, and returns the index of the first one that it has not added: one that has just changed, or could not be
// read, or for which there was no time. It reads one turn first and then more at once, so that it adds some however slowly they are read,
// and fewer than were too large to be read at once. A turn that alone is too large has no figures.
func (r *ConversationReconciler) addTurns(
	ctx context.Context, path []*sessions.Record, status *v1alpha1.ConversationStatus, hidden hiddenItems,
) (next int) {
	end := time.Now().Add(figuresTurn)
	ctx, cancel := context.WithTimeout(ctx, FiguresTimeout)
	defer cancel()
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
	query := resolve.Query{NoWait: true, WalkOptions: chain.WalkOptions{MaxDepth: len(turns), Last: len(turns), ContinueIncomplete: true}}
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
func historyRevisionOf(c *conversations.Record, v conversations.Verdict) string {
	switch {
	case v.Lineage != 0:
		return historyRevision(c, v.Lineage)
	case v.Last == "" && v.Status != metav1.ConditionFalse:
		return ""
	}
	return c.HistoryRevision
}

// historyRevision returns the revision of turns, given the lineage of the last one. It changes with each turn and with the hidden items, but not if
// a turn is overwritten: then one that flips between two statuses would have the statuses of all conversations rewritten that end after it.
func historyRevision(c *conversations.Record, lineage uint64) string {
	return revisions.EncodeToString(binary.BigEndian.AppendUint64(nil, lineage^c.Hidden))
}

var revisions = base64.RawURLEncoding

// withoutPreview is the revision of figures whose preview was removed: of a history that resolves again, all turns are read again.
const withoutPreview = "-"

// lineageOf returns the lineage of a revision with the hidden items that the conversation has now, or 0.
func lineageOf(c *conversations.Record, revision string) uint64 {
	raw, err := revisions.DecodeString(revision)
	if err != nil || len(raw) != binary.Size(uint64(0)) {
		return 0
	}
	return binary.BigEndian.Uint64(raw) ^ c.Hidden
}
