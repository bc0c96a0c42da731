package rollout

import (
	"encoding/binary"
	"fmt"
	"testing"
)

// whole is a raw 64-bit whole number.
func whole(n uint64) string { return string(binary.LittleEndian.AppendUint64(nil, n)) }

// tensor is an answer of the Open Inference Protocol with a raw tensor.
func tensor(kind, id, raw string) Answer {
	head := fmt.Sprintf(`{"id":%q,"outputs":[{"name":"y","datatype":%q,"parameters":{"binary_data_size":%d}}]}`, id, kind, len(raw))
	return Answer{Status: 200, Type: "application/octet-stream", Head: len(head), Body: []byte(head + raw)}
}

func TestAlike(t *testing.T) {
	text := func(kind, body string) Answer { return Answer{Status: 200, Type: kind, Body: []byte(body)} }
	for _, c := range []struct {
		a, b Answer
		want bool
	}{
		{text("application/json", `{"outputs":[{"data":[1,2]}],"id":"a"}`), text("application/json", `{"id":"b","outputs":[{"data":[1.0001,2]}]}`), true},
		{text("application/json", `{"outputs":[{"data":[1,2]}]}`), text("application/json", `{"outputs":[{"data":[1,2.1]}]}`), false},
		{text("application/json", `{"outputs":[{"data":[1,2]}]}`), text("application/json", `{"outputs":[{"data":[1]}]}`), false},
		{text("application/json", `[1]`), text("application/json", `{`), false},
		{text("text/plain", "abcd"), text("text/plain", "abce"), false},
		{text("application/octet-stream", "\x00\x00\x80\x3f"), text("application/octet-stream", "\x01\x00\x80\x3f"), true},
		{text("application/octet-stream", "\x00\x00\x80\x3f"), text("application/octet-stream", "\x00\x00\x00\x40"), false},
		{Answer{Status: 200}, Answer{Status: 404}, false},
		{text("application/octet-stream", whole(5)), text("application/octet-stream", whole(6)), false},
		{text("application/octet-stream", whole(20_000_000)), text("application/octet-stream", whole(20_000_001)), false},
		{text("application/octet-stream", whole(5)), text("application/octet-stream", whole(5)), true},
		{text("application/octet-stream", "\x00\x00\x80\x3f\x00\x00\x00\x00"), text("application/octet-stream", "\x00\x00\x80\x3f\x01\x00\x80\x00"), true},
		{tensor("FP32", "a", "\x00\x00\x80\x3f"), tensor("FP32", "b", "\x01\x00\x80\x3f"), true},
		{tensor("FP32", "a", "\x00\x00\x80\x3f"), tensor("FP32", "b", "\x00\x00\x00\x40"), false},
		{tensor("INT64", "a", whole(5)), tensor("INT64", "b", whole(5)), true},
		{tensor("INT64", "a", whole(5)), tensor("INT64", "b", whole(6)), false},
		{tensor("INT64", "a", whole(5)), tensor("UINT64", "b", whole(5)), false},
		{tensor("FP32", "a", "\x00\x00\x80\x3f"), Answer{Status: 200, Head: 9999, Body: []byte("{}")}, false},
	} {
		if got := Alike(c.a, c.b); got != c.want {
			t.Errorf("%q and %q: %v", c.a.Body, c.b.Body, got)
		}
	}
}
