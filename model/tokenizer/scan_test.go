package tokenizer

import (
	"encoding/json"
	"reflect"
	"testing"
)

// The parts of any valid JSON are those that package json finds.
func FuzzScan(f *testing.F) {
	for _, seed := range []string{
		`{}`, ` { "a" : 1 , "b\"\\" : [ 2 , {"c":null} ] } `, `[]`, "[\n1,\t-2.5e3 ,\"x\\\\\",\"]\",true]", `"text"`, `null`, `[[["\u00e9",1]]]`, `7`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		if !json.Valid([]byte(raw)) || validText([]byte(raw)) != nil {
			return
		}
		var object map[string]any
		var list []any
		value := func(raw json.RawMessage) (v any) {
			if err := json.Unmarshal(raw, &v); err != nil {
				t.Fatalf("the part %q: %v", raw, err)
			}
			return v
		}
		gotObject, gotList := map[string]any{}, []any{}
		isObject := members([]byte(raw), func(name string, v json.RawMessage) { gotObject[name] = value(v) })
		isList := elements([]byte(raw), func(v json.RawMessage) { gotList = append(gotList, value(v)) })
		if want := json.Unmarshal([]byte(raw), &object) == nil && object != nil; isObject != want || want && !reflect.DeepEqual(gotObject, object) {
			t.Errorf("%q: %v %v, want %v %v", raw, isObject, gotObject, want, object)
		}
		if want := json.Unmarshal([]byte(raw), &list) == nil && list != nil; isList != want || want && !reflect.DeepEqual(gotList, list) {
			t.Errorf("%q: %v %v, want %v %v", raw, isList, gotList, want, list)
		}
	})
}
