package grpc

import (
	"bytes"
	"strconv"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// requestMessage is a ModelInferRequest with raw tensors in a buffer, after the room.
func requestMessage(raw ...[]byte) []byte {
	m := appendString(make([]byte, room), 1, "mnist")
	for i := range raw {
		in := appendShape(appendString(appendString(nil, 1, "in"+strconv.Itoa(i)), 2, "UINT8"), 3, []int64{1, int64(len(raw[i]))})
		m = appendBytes(m, 5, in)
	}
	for _, r := range raw {
		m = appendBytes(m, 7, r)
	}
	return m
}

// Raw tensors stay in the buffer that the message came in, the first one where it is.
func TestRawTensorsAreNotCopied(t *testing.T) {
	none := func(int64) error { t.Error("new memory"); return nil }
	for _, raw := range [][][]byte{{bytes.Repeat([]byte("a"), 100_000)}, {[]byte("a"), []byte("bc"), nil, []byte("defg")}} {
		buffer := requestMessage(raw...)
		q, err := parseRequest(buffer[room:])
		if err != nil {
			t.Fatal(err)
		}
		first := &q.raw[0][0]
		body, head, err := q.body(buffer, none, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if &body[head] != first || !bytes.Equal(body[head:], bytes.Join(raw, nil)) {
			t.Errorf("the tensors are %.20q", body[head:])
		}
		if again := q.head(); !bytes.Equal(again, body[:head]) {
			t.Errorf("the JSON part is %s, want %s", body[:head], again)
		}
	}
}

// FuzzRequest: whatever a client sends, a body has its JSON part and as many bytes after it as the inputs say.
func FuzzRequest(f *testing.F) {
	f.Add(requestMessage([]byte("a"), []byte("bc"))[room:])
	f.Add(requestMessage(nil)[room:])
	contents := protowire.AppendVarint(protowire.AppendTag(nil, 2, protowire.VarintType), 5)
	f.Add(appendBytes(appendString(nil, 1, "m"), 5, appendBytes(appendString(nil, 2, "INT8"), 5, contents)))
	f.Fuzz(func(t *testing.T, m []byte) {
		buffer := append(make([]byte, room), m...)
		q, err := parseRequest(buffer[room:])
		if err != nil {
			return
		}
		want := 0
		for _, in := range q.inputs {
			want += in.size
		}
		body, head, err := q.body(buffer, func(int64) error { return nil }, 1<<20)
		if err == nil && len(body) != head+want {
			t.Errorf("%d bytes after the JSON part, want %d", len(body)-head, want)
		}
		_ = reflect(nil, m)
	})
}

// A response keeps what it got, in both forms.
func FuzzContents(f *testing.F) {
	f.Add("INT16", []byte{1, 2, 255, 255})
	f.Add("UINT64", []byte{1, 2, 255, 255, 0, 0, 0, 128})
	f.Add("BYTES", []byte{1, 0, 0, 0, 'x'})
	f.Add("FP16", []byte{1, 2})
	f.Fuzz(func(t *testing.T, datatype string, raw []byte) {
		length, ok := contentsLength(datatype, raw)
		if !ok || datatype == "BOOL" { // A bool is 0 or 1.
			return
		}
		contents := appendContents(nil, datatype, raw)
		if len(contents) != length {
			t.Errorf("%s %q takes %d bytes, not %d", datatype, raw, len(contents), length)
		}
		size, err := contentsSize(datatype, contents)
		back, failed := appendElements(nil, datatype, contents)
		if err != nil || failed != nil || size != len(raw) || !bytes.Equal(back, raw) {
			t.Errorf("%s %q comes back as %q, %d bytes, %v %v", datatype, raw, back, size, err, failed)
		}
	})
}

// The function is named with its namespace, and the model in it without.
func TestModelPath(t *testing.T) {
	for function, want := range map[string]string{
		"iris":        "/function/iris/v2/models/iris/infer",
		"iris.team-a": "/function/iris.team-a/v2/models/iris/infer",
		"a/b?":        "/function/a%2Fb%3F/v2/models/a%2Fb%3F/infer",
	} {
		if got := modelPath(function, "/infer"); got != want {
			t.Errorf("%s: %s", function, got)
		}
	}
}
