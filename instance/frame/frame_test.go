package frame

import (
	"bytes"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"testing"
	"time"
)

func join(t *testing.T, bufs [][]byte, total int64) []byte {
	t.Helper()
	b := bytes.Join(bufs, nil)
	if int64(len(b)) != total {
		t.Fatalf("total says %d bytes, the buffers hold %d", total, len(b))
	}
	return b
}

func TestRequestsRoundTrip(t *testing.T) {
	large := bytes.Repeat([]byte("x"), 3*smallBody)
	in := []Request{
		{Method: "POST", Path: "/", Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte("{}")},
		{Method: "POST", Path: "/v2/models/m/infer", Query: "a=1&b=%20", Header: http.Header{}, Body: large},
		{Method: "GET", Path: "/v2", Header: http.Header{"X-Many": {"one", "two"}}, Body: []byte{}},
		{Method: "POST", Path: "/", Header: http.Header{}, Body: large},
	}
	bufs, total := EncodeRequests(in)
	out, err := DecodeRequests(join(t, bufs, total))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(in, out) {
		t.Fatalf("got %+v\nwant %+v", out, in)
	}
}

func TestLargeBodiesAreNotCopied(t *testing.T) {
	large := bytes.Repeat([]byte("x"), 1<<20)
	bufs, _ := EncodeRequests([]Request{{Method: "POST", Path: "/", Body: large}, {Method: "POST", Path: "/", Body: large}})
	same := 0
	for _, b := range bufs {
		if len(b) == len(large) && &b[0] == &large[0] {
			same++
		}
	}
	if same != 2 {
		t.Fatalf("%d of 2 bodies are the caller's own", same)
	}
}

func TestHeaderValueCannotAddAHeader(t *testing.T) {
	bufs, total := EncodeResponses([]Response{{Status: 200, Header: http.Header{"A": {"1\nB: 2"}}}})
	out, err := DecodeResponses(join(t, bufs, total))
	if err != nil {
		t.Fatal(err)
	}
	if out[0].Header.Get("B") != "" {
		t.Fatal("a line break in a value made a header")
	}
}

func TestDecodeRefuses(t *testing.T) {
	bufs, total := EncodeRequests([]Request{{Method: "POST", Path: "/", Body: []byte("body")}})
	good := join(t, bufs, total)
	cases := map[string][]byte{
		"empty":           nil,
		"other magic":     append([]byte("NOPE"), good[4:]...),
		"cut off":         good[:len(good)-1],
		"trailing bytes":  append(bytes.Clone(good), 0),
		"too many":        {'F', 'I', 'B', '1', 255, 255, 255, 255},
		"head too long":   {'F', 'I', 'B', '1', 1, 0, 0, 0, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0},
		"body wraps":      {'F', 'I', 'B', '1', 1, 0, 0, 0, 1, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255, '\n'},
		"no request line": {'F', 'I', 'B', '1', 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, '\n'},
	}
	for name, b := range cases {
		if _, err := DecodeRequests(b); !errors.Is(err, ErrFrame) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func FuzzDecodeRequests(f *testing.F) {
	bufs, _ := EncodeRequests([]Request{{Method: "POST", Path: "/a", Query: "q", Header: http.Header{"A": {"b"}}, Body: []byte("body")}})
	f.Add(bytes.Join(bufs, nil))
	f.Add([]byte("FIB1"))
	f.Fuzz(func(t *testing.T, b []byte) {
		in, err := DecodeRequests(b)
		if err != nil {
			return
		}
		// What was read can be written and reads the same again.
		bufs, total := EncodeRequests(in)
		again, err := DecodeRequests(join(t, bufs, total))
		if err != nil {
			t.Fatal(err)
		}
		if len(in) != len(again) {
			t.Fatalf("%d members became %d", len(in), len(again))
		}
		for i := range in {
			if in[i].Path != again[i].Path || in[i].Query != again[i].Query || !bytes.Equal(in[i].Body, again[i].Body) {
				t.Fatalf("member %d changed: %+v, %+v", i, in[i], again[i])
			}
		}
	})
}

func BenchmarkDecodeRequests(b *testing.B) {
	in := make([]Request, 32)
	for i := range in {
		in[i] = Request{Method: "POST", Path: "/", Header: http.Header{"Content-Type": {"application/octet-stream"}, "Inference-Header-Content-Length": {"120"}}, Body: make([]byte, 9460)}
	}
	bufs, _ := EncodeRequests(in)
	wire := bytes.Join(bufs, nil)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeRequests(wire); err != nil {
			b.Fatal(err)
		}
	}
}

// A time beside each member, and what is no such list.
func TestWithin(t *testing.T) {
	for _, c := range []struct {
		value string
		count int
		want  []time.Duration
		fails bool
	}{
		{value: "", count: 3},
		{value: "5", count: 1, want: []time.Duration{5 * time.Microsecond}},
		{value: "1000,0", count: 2, want: []time.Duration{time.Millisecond, 0}},
		{value: "1,2", count: 3, fails: true},
		{value: "-1", count: 1, fails: true},
		{value: "1,", count: 2, fails: true},
		{value: "99999999999999999", count: 1, fails: true},
	} {
		got, err := ParseWithin(c.value, c.count)
		if (err != nil) != c.fails || !slices.Equal(got, c.want) {
			t.Errorf("%q: %v, %v", c.value, got, err)
		}
		if !c.fails && c.value != "" && string(AppendWithin(nil, got)) != c.value {
			t.Errorf("%v is written as %q, not %q", got, AppendWithin(nil, got), c.value)
		}
	}
}

// Of answers that are read one after the other, none holds another's memory, and a stream
// that ends early is an error.
func TestAnswersHaveMemoryOfTheirOwn(t *testing.T) {
	bufs, total := EncodeResponses([]Response{{Status: 200, Body: []byte("one")}, {Status: 503, Body: []byte("three")}})
	text := join(t, bufs, total)
	out, err := ReadResponses(bytes.NewReader(text), total)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range out {
		if cap(r.Body) > 16 {
			t.Errorf("an answer of %d bytes holds %d", len(r.Body), cap(r.Body))
		}
	}
	for cut := range len(text) {
		if _, err := ReadResponses(bytes.NewReader(text[:cut]), total); err == nil {
			t.Errorf("no error of a stream that ends after %d of %d bytes", cut, total)
		}
	}
}
