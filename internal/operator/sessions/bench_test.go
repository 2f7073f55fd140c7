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

package sessions

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
)

// BenchmarkNewRecord makes the record of a session with 8 KiB of bodies and a verdict, as a list and an event of a watch do.
func BenchmarkNewRecord(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 2))
	var text strings.Builder
	for text.Len() < 1000 {
		fmt.Fprintf(&text, "%x ", random.Uint32()>>random.IntN(20))
	}
	item := fmt.Sprintf(`{"type":"message","role":"user","content":[{"type":"input_text","text":%q}]}`, text.String())
	request := `{"model":"m","input":[` + strings.Repeat(item+",", 7) + item + `]}`
	for name, form := range map[string]func(*v1alpha1.ResponseSession){
		"json":   func(o *v1alpha1.ResponseSession) { o.Spec.Request = &runtime.RawExtension{Raw: []byte(request)} },
		"packed": func(o *v1alpha1.ResponseSession) { o.Spec.Format, o.Spec.Packed = 2, packed(request) },
	} {
		o := object("resp_2", "resp_1", 7)
		form(o)
		o.Status = v1alpha1.ResponseSessionStatus{
			ObservedGeneration: 1, Depth: 2, RootResponseID: "resp_1", SnapshotStore: v1alpha1.SnapshotStoreInline, SnapshotBytes: int64(len(request)),
			Conditions: []metav1.Condition{{
				Type: v1alpha1.ConditionChainValid, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonResolved,
				Message: "Every turn up to the root is stored and completed.", ObservedGeneration: 1, LastTransitionTime: metav1.Now(),
			}},
		}
		value := encoded(o)
		b.Run(name+"/list", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				NewRecord(value, nil)
			}
		})
		b.Run(name+"/event", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				newRecord(value, nil, maxKeptBytes)
			}
		})
	}
}
