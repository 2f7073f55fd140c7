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

package jsonvalue

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	kjson "k8s.io/apimachinery/pkg/util/json"
)

func TestSurvives(t *testing.T) {
	object := func(members int, format string) string {
		var parts []string
		for i := range members {
			parts = append(parts, fmt.Sprintf(format, i))
		}
		return "{" + strings.Join(parts, ",") + "}"
	}
	cases := map[string]struct {
		raw  string
		want bool
	}{
		"null":                              {`null`, true},
		"object":                            {`{"b":[1,"x",true,null],"a":{}}`, true},
		"spaces":                            {" {\n\"a\" : 1 } ", true},
		"a fraction of zero":                {`1.0`, true},
		"negative zero":                     {`-0.0`, true},
		"largest int64":                     {`9223372036854775807`, true},
		"beyond int64, few digits":          {`92233720368547758070000000`, false},
		"ten to the 20th":                   {`100000000000000000000`, true},
		"ten to the 20th, with an exponent": {`1e20`, true},
		"beyond int64":                      {`9223372036854775808`, false},
		"integer of 20 digits":              {`12345678901234567890`, false},
		"integer of 20 digits in a list":    {`{"a":[{"b":12345678901234567890}]}`, false},
		"17 digits of a float64":            {`0.30000000000000004`, true},
		"trailing zeros":                    {`0.50000000000000000000000`, true},
		"leading zeros of a fraction":       {`0.0000000000000000001`, true},
		"more digits than a float64":        {`0.12345678901234567890`, false},
		"negative":                          {`-0.12345678901234567890`, false},
		"beyond float64":                    {`1e400`, false},
		"below float64":                     {`1e-400`, false},
		"huge exponent":                     {`1e99999999999999999999`, false},
		"exponent and fraction":             {`1.50E+3`, true},
		"duplicate key":                     {`{"a":1,"b":2,"a":1}`, false},
		"duplicate key, one escaped":        {`{"a":1,"\u0061":1}`, false},
		"same key in two objects":           {`{"a":{"a":1},"b":{"a":1}}`, true},
		"many keys":                         {object(100, `"k%d":0`), true},
		"many keys, the last one duplicate": {object(100, `"k%[1]d":0`)[:len(object(100, `"k%[1]d":0`))-1] + `,"k99":0}`, false},
		"surrogate pair":                    {`"\ud83d\ude00"`, true},
		"high half alone":                   {`"\ud83d"`, false},
		"high half before another escape":   {`"\ud83d\n"`, false},
		"two high halves":                   {`"\ud83d\ud83d"`, false},
		"low half alone":                    {`"a\ude00"`, false},
		"half in a key":                     {`{"\ude00":1}`, false},
		"escaped backslash, not an escape":  {`"\\ud83d"`, true},
		"escaped quote":                     {`"\"\u0000\/"`, true},
		"invalid UTF-8":                     {"\"\xff\"", false},
		"not JSON":                          {`{`, false},
		"empty":                             {``, false},
		"two values":                        {`{} {}`, false},
		"long number":                       {"0." + strings.Repeat("0", survivableNumber-2), true},
		"number too long":                   {"0." + strings.Repeat("0", survivableNumber-1), false},
		"deep":                              {strings.Repeat("[", survivableDepth) + strings.Repeat("]", survivableDepth), true},
		"too deep":                          {strings.Repeat("[", survivableDepth+1) + strings.Repeat("]", survivableDepth+1), false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Survives([]byte(tc.raw)); got != tc.want {
				t.Errorf("Survives(%s) = %t, want %t", tc.raw, got, tc.want)
			}
		})
	}
}

// FuzzSurvives compares Survives with Kubernetes: a value that survives must be the same after decoding and encoding.
func FuzzSurvives(f *testing.F) {
	for _, seed := range []string{`{"a":[1,-0.0,1e3,"\ud83d\ude00"],"b":null}`, `12345678901234567890`, `0.1234567890123456789`, `{"a":1,"a":2}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !Survives(raw) {
			return
		}
		var kept any
		if err := kjson.Unmarshal(raw, &kept); err != nil {
			t.Fatalf("%s survives, but Kubernetes rejects it: %v", raw, err)
		}
		back, err := json.Marshal(kept)
		if err != nil {
			t.Fatal(err)
		}
		if d := Difference("x", mustDecode(t, string(raw)), mustDecode(t, string(back))); d != "" {
			t.Errorf("%s survives, but is decoded and encoded as %s: %s", raw, back, d)
		}
	})
}
