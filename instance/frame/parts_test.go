package frame

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"reflect"
	"slices"
	"testing"
)

func TestPartsComeBack(t *testing.T) {
	frame, _ := EncodeResponses([]Response{{Status: 200, Body: []byte("whole")}})
	sent := []Part{
		{Member: 0, Body: []byte("one")}, {Member: MaxMembers - 1, Body: []byte{}},
		{Member: -1, Header: http.Header{ExecHeader: {"12"}}, Body: bytes.Join(frame, nil)},
	}
	var wire []byte
	for _, p := range sent {
		wire = AppendPart(wire, p)
	}
	r := bytes.NewReader(wire)
	for i, want := range sent {
		got, err := ReadPart(r, 1<<20)
		if err != nil || got.Member != want.Member || !bytes.Equal(got.Body, want.Body) || want.Header != nil && !reflect.DeepEqual(got.Header, want.Header) {
			t.Errorf("part %d: %+v, %v; want %+v", i, got, err, want)
		}
	}
	if _, err := ReadPart(r, 1<<20); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
}

func TestReadPartRefuses(t *testing.T) {
	good := AppendPart(nil, Part{Member: 3, Body: []byte("body")})
	for name, wire := range map[string][]byte{
		"cut off":         good[:len(good)-1],
		"a long body":     append([]byte{4, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255}, "end\n"...),
		"a long head":     {255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0},
		"no line":         {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
		"another line":    append([]byte{4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, "any\n"...),
		"no position":     append([]byte{7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, "part a\n"...),
		"a position < 0":  append([]byte{8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, "part -1\n"...),
		"a high position": append([]byte{10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, "part 4096\n"...),
	} {
		if got, err := ReadPart(bytes.NewReader(wire), 1<<20); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestPartsHeaderComesBack(t *testing.T) {
	take := func([]byte) error { return nil }
	requests := []Request{{}, {Parts: take}, {}, {Parts: take}}
	value := FormatParts(requests)
	if got, err := ParseParts(value, len(requests)); err != nil || !slices.Equal(got, []int{1, 3}) {
		t.Errorf("%q: %v, %v", value, got, err)
	}
	if got, err := ParseParts(FormatParts(requests[:1]), 1); err != nil || got != nil {
		t.Errorf("without parts: %v, %v", got, err)
	}
	for _, value := range []string{"4", "-1", "a", "1,1", "1,", " 1"} {
		if got, err := ParseParts(value, 4); err == nil {
			t.Errorf("%q: %v", value, got)
		}
	}
}

func FuzzReadPart(f *testing.F) {
	f.Add(AppendPart(nil, Part{Member: 1, Body: []byte("body")}))
	f.Add(AppendPart(nil, Part{Member: -1, Header: http.Header{"A": {"b"}}}))
	f.Fuzz(func(t *testing.T, wire []byte) {
		in, err := ReadPart(bytes.NewReader(wire), 1<<16)
		if err != nil {
			return
		}
		// What was read can be written and reads the same again.
		again, err := ReadPart(bytes.NewReader(AppendPart(nil, in)), 1<<16)
		if err != nil || again.Member != in.Member || !bytes.Equal(again.Body, in.Body) {
			t.Fatalf("%+v became %+v, %v", in, again, err)
		}
	})
}

func TestPartsAreBounded(t *testing.T) {
	for n, fits := range map[int]bool{MaxPart: true, MaxPart + 1: false} {
		for member, fits := range map[int]bool{0: fits, -1: true} {
			_, err := ReadPart(bytes.NewReader(AppendPart(nil, Part{Member: member, Body: make([]byte, n)})), 1<<30)
			if (err == nil) != fits {
				t.Errorf("%d bytes for member %d: %v", n, member, err)
			}
		}
	}
}
