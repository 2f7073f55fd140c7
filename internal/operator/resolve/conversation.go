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

package resolve

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/types"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/operator/sessions"
	"github.com/catena-dev/catena/store/driver"
)

// +kubebuilder:rbac:groups=sessions.catena.dev,resources=conversations,verbs=get

// Conversation is what the history of a conversation depends on. It is never changed.
type Conversation struct {
	// Name and UID identify the Conversation object.
	Name string
	UID  types.UID
	// ID is its conversation ID.
	ID string
	// Head is where the history ends.
	Head driver.Head
	// Hidden are the items that are not part of the history. A Result has those of its turns only.
	Hidden []driver.HiddenItem
}

// within returns the conversation without the hidden items of turns that are not in a path, and with the IDs of the path: a conversation can have
// 1 MB of others, which no share of its namespace counts.
func (c *Conversation) within(path []*sessions.Record) *Conversation {
	if c == nil || len(c.Hidden) == 0 {
		return c
	}
	ids := make(map[string]string, len(c.Hidden))
	for _, item := range c.Hidden {
		ids[item.ResponseID] = ""
	}
	for _, turn := range path {
		if _, hides := ids[turn.Turn.ID]; hides {
			ids[turn.Turn.ID] = turn.Turn.ID
		}
	}
	next := *c
	next.Hidden = nil
	for _, item := range c.Hidden {
		if id := ids[item.ResponseID]; id != "" {
			next.Hidden = append(next.Hidden, driver.HiddenItem{ResponseID: id, Number: item.Number})
		}
	}
	return &next
}

// conversationCost is the least that the read of a conversation costs, whether it exists or not, in bytes of a cached history: at the default
// rate, a namespace can have 1000 read a second.
const conversationCost = 64 << 10

// ErrNoConversation is returned if a conversation does not exist.
var ErrNoConversation = errors.New("the conversation does not exist")

// ResolveConversation returns the history of a conversation, as Resolve does for its head. The name is an ID or an object name; one with a dot
// is an object name if a conversation has it. The conversation is read live, so that the result has every turn that was appended before. If the
// head is reserved for a turn that is not stored in its place, the history is that of the base. The result has the hidden items too.
//
// It returns ErrNoConversation, or the errors of Resolve. If the head was deleted, that is a *chain.Error.
func (r *Resolver) ResolveConversation(ctx context.Context, namespace, name string, minVersion uint64, query Query) (*Result, error) {
	return r.admit(namespace, func() (*Result, error) {
		if err := r.answers.take(ctx, r.newLookup(namespace, query), conversationCost); err != nil {
			return nil, err
		}
		conversation, bytes, err := r.reader.conversation(ctx, namespace, name)
		r.answers.debit(namespace, max(cold*bytes-conversationCost, 0))
		if err != nil {
			return nil, err
		}
		head := conversation.Head
		result, err := r.historyOf(ctx, namespace, conversation, head.ResponseID, minVersion, query)
		outOfPlace, err := r.isOutOfPlace(ctx, namespace, head, result, err)
		if !outOfPlace {
			return result, err
		}
		if result != nil {
			result.Release()
		}
		return r.historyOf(ctx, namespace, conversation, head.BaseResponseID, minVersion, query)
	})
}

// isOutOfPlace reports whether the turn of a head is not stored in its place, given its history or the error. If not, it returns the error.
func (r *Resolver) isOutOfPlace(ctx context.Context, namespace string, head driver.Head, result *Result, err error) (bool, error) {
	broken, isBroken := errors.AsType[*chain.Error](err)
	switch {
	case err == nil:
		return !result.holds(head), nil
	case !isBroken || head.Reservation == (driver.Reservation{}):
		return false, err
	case broken.Rule == chain.NotFound:
		return true, nil
	}
	turn, _, readErr := r.reader.getObject(ctx, namespace, v1alpha1.ObjectName(head.ResponseID))
	if readErr != nil {
		return false, readErr
	}
	if turn == nil {
		return false, err
	}
	r.answers.debit(namespace, cold*int64(turn.ObjectBytes))
	if !turn.InChain() || head.Holds(turn.Turn.Previous) {
		return false, err
	}
	return true, nil
}

// historyOf returns the history of a conversation that ends at a turn. It is empty if there is none.
func (r *Resolver) historyOf(
	ctx context.Context, namespace string, conversation *Conversation, id string, minVersion uint64, query Query,
) (*Result, error) {
	if id == "" {
		result := &Result{Conversation: conversation.within(nil), Revision: revisionOf(nil)}
		result.Unchanged = query.Unchanged != nil && query.Unchanged(result)
		return result, nil
	}
	l := r.newLookup(namespace, query)
	l.conversation = conversation
	return l.resolve(ctx, id, minVersion)
}

// holds reports whether the result ends at a head, and not at a turn that was saved after it had lost its place.
func (r *Result) holds(head driver.Head) bool {
	return len(r.Path) == 0 || head.Holds(r.Path[len(r.Path)-1].Turn.Previous)
}

// conversation returns the conversation with an ID or an object name, or ErrNoConversation, and the bytes that were read.
func (r *Reader) conversation(ctx context.Context, namespace, name string) (conversation *Conversation, bytes int64, err error) {
	if strings.Contains(name, ".") && mayBeObjectName(name) {
		if conversation, bytes, err = r.conversationObject(ctx, namespace, name); !errors.Is(err, ErrNoConversation) {
			return conversation, bytes, err
		}
	}
	conversation, read, err := r.conversationObject(ctx, namespace, v1alpha1.ObjectName(name))
	bytes += read
	if err == nil && conversation.ID != name {
		err = ErrNoConversation // the name is the hash of another ID
	}
	return conversation, bytes, err
}

// conversationObject reads the conversation with an object name. One that is being deleted, or whose name does not follow from its ID,
// does not exist.
func (r *Reader) conversationObject(ctx context.Context, namespace, name string) (*Conversation, int64, error) {
	if err := r.slots.Acquire(ctx, namespace, 1); err != nil {
		return nil, 0, err
	}
	defer r.slots.Release(namespace, 1)
	raw, err := kubeclient.GetRaw(ctx, r.client, kubeclient.Conversations, types.NamespacedName{Namespace: namespace, Name: name})
	if kubeclient.IsGone(err, kubeclient.Conversations, name) {
		return nil, 0, ErrNoConversation
	}
	if err != nil {
		return nil, 0, fmt.Errorf("unable to read conversation %s/%s: %w", namespace, name, err)
	}
	bytes := int64(len(raw))
	conversation, deleting := parseConversation(gjson.Parse(jsonvalue.Text(raw)))
	if deleting || v1alpha1.ObjectName(conversation.ID) != name {
		return nil, bytes, ErrNoConversation
	}
	return conversation, bytes, nil
}

// parseConversation returns the conversation of an object as the API server has sent it. Its strings do not keep the object alive.
func parseConversation(object gjson.Result) (conversation *Conversation, deleting bool) {
	fields := jsonvalue.Members(object, "metadata", "spec")
	metadata := kubeclient.ParseMetadata(fields[0])
	spec := jsonvalue.Members(fields[1], "conversationID", "headResponseID", "baseResponseID", "reservation", "hiddenItems")
	conversation = &Conversation{
		Name: metadata.Name, UID: metadata.UID, ID: strings.Clone(spec[0].Str),
		Head: driver.Head{ResponseID: strings.Clone(spec[1].Str), BaseResponseID: strings.Clone(spec[2].Str)},
	}
	reservation := jsonvalue.Members(spec[3], "durationSeconds", "renewals")
	conversation.Head.Reservation = driver.Reservation{
		Duration: time.Duration(reservation[0].Int()) * time.Second, Renewals: reservation[1].Int(),
	}
	for _, raw := range jsonvalue.Elements(spec[4].Raw) {
		item := jsonvalue.Members(gjson.Parse(raw), "responseID", "number")
		conversation.Hidden = append(conversation.Hidden, driver.HiddenItem{ResponseID: strings.Clone(item[0].Str), Number: int(item[1].Int())})
	}
	return conversation, metadata.DeletionTimestamp != nil
}
