package web_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/faas-infer/faas-infer/provider/web"
)

// busy is an error with a Retry-After.
type busy struct {
	status int
	after  time.Duration
}

func (b busy) Error() string             { return "all are busy" }
func (b busy) HTTPStatus() int           { return b.status }
func (b busy) RetryAfter() time.Duration { return b.after }

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		name   string
		err    error
		status int
		retry  string
	}{
		{"one that knows", web.Refuse(404, "no function %q", "x"), 404, ""},
		{"wrapped", fmt.Errorf("deploy: %w", web.Refuse(409, "exists")), 409, ""},
		{"a status that is no error's", web.Refuse(200, "fine"), 500, ""},
		{"a status that is none", web.Refuse(700, "what"), 500, ""},
		{"the client left", fmt.Errorf("read: %w", context.Canceled), web.StatusHungUp, ""},
		{"too late", fmt.Errorf("read: %w", context.DeadlineExceeded), 504, ""},
		{"what knows counts before what ended", errors.Join(context.Canceled, web.Refuse(400, "bad")), 400, ""},
		{"anything else", errors.New("disk full"), 500, ""},
		{"unavailable", web.Refuse(503, "starting"), 503, "1"},
		{"too many", web.Refuse(429, "slow down"), 429, "1"},
		{"with a time", busy{503, 1500 * time.Millisecond}, 503, "2"},
		{"less than the header can say", busy{429, time.Nanosecond}, 429, "1"},
		{"without a time", busy{503, 0}, 503, "1"},
		{"another status with a time", fmt.Errorf("x: %w", busy{409, time.Minute}), 409, "60"},
	} {
		w := httptest.NewRecorder()
		w.Header().Set("Content-Type", "application/json")
		status := web.WriteError(w, c.err)
		h := w.Header()
		if status != c.status || w.Code != c.status || web.StatusOf(c.err) != c.status || h.Get("Retry-After") != c.retry {
			t.Errorf("%s: %d and %d, Retry-After %q", c.name, status, w.Code, h.Get("Retry-After"))
		}
		if w.Body.String() != c.err.Error()+"\n" || h.Get("Content-Length") != fmt.Sprint(w.Body.Len()) || h.Get("Content-Type") != "text/plain; charset=utf-8" ||
			h.Get("X-Content-Type-Options") != "nosniff" || h.Get("X-Openfaas-Internal") != "provider" {
			t.Errorf("%s: %q %v", c.name, w.Body, h)
		}
		for path, want := range map[string]string{
			"/": "", "/v2x/models": "", "/a/v2": "",
			"/v2": "application/json", "/v2/models/m/infer": "application/json", "/v1/models/m:predict": "application/json",
		} {
			below := httptest.NewRecorder()
			if got := web.WriteErrorBelow(below, path, c.err); got != c.status || below.Code != c.status || below.Header().Get("Retry-After") != c.retry {
				t.Errorf("%s: %s: %d and %d, Retry-After %q", c.name, path, got, below.Code, below.Header().Get("Retry-After"))
			}
			var said struct{ Error string }
			err := json.Unmarshal(below.Body.Bytes(), &said)
			switch {
			case want == "" && (err == nil || below.Body.String() != w.Body.String()):
				t.Errorf("%s: %s: %q", c.name, path, below.Body)
			case want != "" && (err != nil || said.Error != c.err.Error() || below.Header().Get("Content-Type") != want):
				t.Errorf("%s: %s: %q %v, %v", c.name, path, below.Body, below.Header(), err)
			}
		}
	}
}

func TestJSON(t *testing.T) {
	w := httptest.NewRecorder()
	web.WriteJSON(w, map[string]any{"name": "a", "n": 1})
	if h := w.Header(); w.Code != 200 || w.Body.String() != `{"n":1,"name":"a"}`+"\n" || h.Get("Content-Type") != "application/json" || h.Get("Content-Length") != "19" {
		t.Errorf("%d %q %v", w.Code, w.Body, h)
	}
	w = httptest.NewRecorder()
	web.WriteJSON(w, func() {})
	if w.Code != 500 || !strings.Contains(w.Body.String(), "JSON") {
		t.Errorf("what is no JSON: %d %q", w.Code, w.Body)
	}
}

func TestParse(t *testing.T) {
	type object struct {
		Name  string `json:"name"`
		Inner struct {
			N int `json:"n"`
		} `json:"inner"`
	}
	for _, c := range []struct{ text, says string }{
		{`{"name":"a","inner":{"n":3},"unknown":1}`, ""},
		{``, "the request body is empty; it must be a thing as JSON"},
		{`{"name":`, "a thing as JSON: unexpected end"},
		{`{"name":1}`, `"name" cannot be a number`},
		{`{"inner":{"n":"x"}}`, `"inner.n" cannot be a string`},
		{`[1]`, "not a JSON array"},
		{`"x"`, "not a JSON string"},
		{`{} {}`, "invalid character"},
	} {
		var o object
		err := web.ParseJSON([]byte(c.text), "a thing", &o)
		if c.says == "" {
			if err != nil || o.Name != "a" || o.Inner.N != 3 {
				t.Errorf("%s: %v, %+v", c.text, err, o)
			}
			continue
		}
		if err == nil || web.StatusOf(err) != http.StatusBadRequest || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "Go ") {
			t.Errorf("%s: %v, want %q", c.text, err, c.says)
		}
	}
}

func TestClip(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", ""}, {strings.Repeat("x", 80), strings.Repeat("x", 80)}, {strings.Repeat("x", 81), strings.Repeat("x", 80) + "…"},
		{strings.Repeat("x", 79) + "ü", strings.Repeat("x", 79) + "…"},
	} {
		if got := web.Clip(c.in); got != c.want {
			t.Errorf("%q becomes %q", c.in, got)
		}
	}
}

// The refusal of any body is a sentence with status 400. The clip of any name is short
// and valid UTF-8 if the name is.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "{}", `{"name":1}`, `{"a":[{}]}`, "\xff", "null", `{"name":"\ud800"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var o struct {
			Name   string            `json:"name"`
			Labels map[string]string `json:"labels"`
			N      *uint8            `json:"n"`
		}
		err := web.ParseJSON(text, "it", &o)
		if (err == nil) != (json.Unmarshal(text, &o) == nil) {
			t.Errorf("%q: %v", text, err)
		}
		if err != nil && (web.StatusOf(err) != 400 || !strings.HasPrefix(err.Error(), "the request body ")) {
			t.Errorf("%q: %v", text, err)
		}
		clip := web.Clip(string(text))
		if len(clip) > 80+len("…") || !bytes.HasPrefix(text, []byte(strings.TrimSuffix(clip, "…"))) && utf8.Valid(text) {
			t.Errorf("%q is clipped to %q", text, clip)
		}
	})
}

// Clients of functions see no paths of the machine, in either form. Those who may deploy see them.
func TestConceal(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	sentence := fmt.Sprintf("the function cannot be served: open %s/local/instances/x-1/instance.json: permission denied", state)
	for text, want := range map[string]string{
		sentence:                             "the function cannot be served: open …/instance.json: permission denied",
		`model "/tmp/a b/c" of '/tmp/x y/z'`: `model "…/a b/c" of '…/x y/z'`,
		"/tmp/a/b":                           "…/b",
		"fork/exec /usr/bin/python3: no such file or directory (/usr/lib/x.so)":                   "fork/exec …/python3: no such file or directory (…/x.so)",
		"there is no route \"/function/x/v1\" in application/json at http://h/tmp/x and ../usr/x": "there is no route \"/function/x/v1\" in application/json at http://h/tmp/x and ../usr/x",
	} {
		if got := web.Conceal(text); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	for path, hidden := range map[string]bool{"": false, "/": true, "/v2/models/m/infer": true, "/v1/x": true} {
		w := httptest.NewRecorder()
		web.WriteErrorBelow(w, path, web.Unavailable(0, "%s", sentence))
		if got := w.Body.String(); strings.Contains(got, state) == hidden || !strings.Contains(got, "instance.json") {
			t.Errorf("below %q: %s", path, got)
		}
	}
}
