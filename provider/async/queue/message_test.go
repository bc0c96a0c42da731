package queue

import (
	"encoding/json"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/openfaas/faas-provider/types"
)

func TestDecode(t *testing.T) {
	r, err := DecodeRequest([]byte(`{"Function":"echo.dev","Body":"aGk=","Path":"a","QueryString":"?x=y","Header":{"content-length":["2"],"x-a":["1"],"X-A":["2"],"Connection":["close"]},"Host":"h"}`))
	if err != nil {
		t.Fatal(err)
	}
	f := r.Frame()
	if r.Name != "echo.dev" || f.Method != "POST" || f.Path != "/a" || f.Query != "x=y" || string(f.Body) != "hi" || len(f.Header["X-A"]) != 2 ||
		len(f.Header) != 2 || f.Header.Get("X-Forwarded-Host") != "h" {
		t.Errorf("%+v %+v", r, f)
	}
	for text, want := range map[string]string{
		``:                                      "not a queued request in JSON",
		`[]`:                                    "not a queued request in JSON",
		`{}`:                                    "Function is empty",
		`{"Function":"a.b.c"}`:                  "Function is",
		`{"Function":"A"}`:                      "Function is",
		`{"Function":"a."}`:                     "Function is",
		`{"Function":"a","Method":"GET /x"}`:    "Method",
		`{"Function":"a","Path":"/x y"}`:        "Path",
		`{"Function":"a","Path":"/x\n"}`:        "Path",
		`{"Function":"a","Path":"/x?y"}`:        "Path",
		`{"Function":"a","QueryString":"a\nb"}`: "QueryString",
		`{"Function":"a","Header":{"":["x"]}}`:  "Header",
		`{"Function":"a","Header":{"X":["a\r\nb"]}}`:                                    "line break",
		`{"Function":"a","Body":"!"}`:                                                   "not a queued request in JSON",
		`{"Function":"a","CallbackUrl":{"Scheme":"ftp","Host":"h"}}`:                    "http://",
		`{"Function":"a","CallbackUrl":{"Scheme":"http"}}`:                              "host",
		`{"Function":"a","CallbackUrl":{"Scheme":"http","Host":"a b"}}`:                 "URL",
		`{"Function":"a","Header":{"X":["` + strings.Repeat("x", 70000) + `"]}}`:        "limit",
		`{"Function":"a","CallbackUrl":{"Scheme":"http","Opaque":"x","Host":"h"}}`:      "host",
		`{"Function":"` + strings.Repeat("a", 100) + `"}`:                               "Function is",
		`{"Function":"a","CallbackUrl":{"Scheme":"http","Host":"h","Path":1}}`:          "not a queued request in JSON",
		`{"Function":"a","CallbackUrl":{"Scheme":"javascript","Host":"h","Path":"/x"}}`: "http://",
	} {
		if _, err := DecodeRequest([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: error %v does not say %q", text, err, want)
		}
	}
}

// Every message that the gateway publishes can be decoded.
func TestRoundTrip(t *testing.T) {
	u, err := url.Parse("https://host:8443/a%2Fb?c=d#e")
	if err != nil {
		t.Fatal(err)
	}
	in := types.QueueRequest{Function: "echo", Body: []byte{0, 1, 255}, Method: "POST", Path: "/a%20b", Header: http.Header{"X-Call-Id": {"1"}}, CallbackURL: u}
	data, err := EncodeRequest(&in)
	if err != nil {
		t.Fatal(err)
	}
	out, err := DecodeRequest(data)
	if err != nil || out.CallbackURL.String() != u.String() || !reflect.DeepEqual(out.Body, in.Body) || out.CallID() != "1" || out.Path != in.Path {
		t.Errorf("%+v %v", out, err)
	}
}

func TestCallbackWithPassword(t *testing.T) {
	u, err := url.Parse("https://user:pass@host/")
	if err != nil {
		t.Fatal(err)
	}
	if err := CheckCallback(u); err == nil || strings.Contains(err.Error(), "pass@") {
		t.Errorf("user and password: %v", err)
	}
	// The gateway does not look, and its JSON loses them: an empty User is left.
	data, err := EncodeRequest(&types.QueueRequest{Function: "echo", CallbackURL: u})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := DecodeRequest(data); err == nil || !strings.Contains(err.Error(), "user and password") {
		t.Errorf("a message that had them: %v", err)
	}
}

// FuzzDecode: no message makes DecodeRequest panic. A decoded one can be encoded and
// decoded again, and contains nothing that would break the lines of an HTTP request.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{`{"Function":"echo"}`, `null`, `{"Function":"a.b","Path":"x","Header":{"a":["b"]},"CallbackUrl":{"Scheme":"http","Host":"h"}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := DecodeRequest(data)
		if err != nil {
			return
		}
		if strings.ContainsAny(r.Path+r.QueryString+r.Method, "\r\n ") || !strings.HasPrefix(r.Path, "/") {
			t.Fatalf("%q %q %q", r.Method, r.Path, r.QueryString)
		}
		again, err := EncodeRequest(&r.QueueRequest)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := DecodeRequest(again); err != nil {
			t.Fatalf("what was read cannot be read again: %v", err)
		}
		_ = r.Frame()
	})
}

// FuzzScan: the scanner and package json read the same from a message.
func FuzzScan(f *testing.F) {
	for _, s := range []string{`{"Function":"a","Body":"aGk=","Header":{"Body":["x"]}}`, ` { "Body" : "" , "body":null } `, `{"Body":"a\\""}`, `{"Body":"\u0061"}`,
		`{"Body":[1],"Function":"\"}"}`, `{}`, `{"Body":"AA=="}x`, `{"Body":"A\nA"}`, `{"CallbackUrl":{"Host":"}"},"Body":"AA=="}`, `{"Body":}`, `{,}`, `{"Body":"AA==",}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var fast, slow message
		errFast, errSlow := unmarshal(data, &fast, true), json.Unmarshal(data, &slow)
		if (errFast == nil) != (errSlow == nil) {
			t.Fatalf("scanned: %v, JSON: %v", errFast, errSlow)
		}
		if errSlow != nil {
			return
		}
		if len(fast.Body) == 0 && len(slow.Body) == 0 {
			fast.Body, slow.Body = nil, nil
		}
		if !reflect.DeepEqual(fast, slow) {
			t.Fatalf("scanned: %+v, JSON: %+v", fast, slow)
		}
		var head message
		if err := unmarshal(data, &head, false); err != nil {
			t.Fatalf("without the body: %v", err)
		}
		head.Body, slow.Body = nil, nil
		if !reflect.DeepEqual(head, slow) {
			t.Fatalf("without the body: %+v, JSON: %+v", head, slow)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	data, err := EncodeRequest(&types.QueueRequest{Function: "echo", Body: make([]byte, 250_000), Header: http.Header{"X-Call-Id": {"1"}}})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := DecodeRequest(data); err != nil {
			b.Fatal(err)
		}
	}
}
