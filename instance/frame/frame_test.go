package frame

import (
	"bytes"
	"errors"
	"net/http"
	"reflect"
	"testing"
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
