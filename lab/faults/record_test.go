package faults

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/command/load"
)

// echo is a function that gives back what it is sent.
func echo() *function {
	body := func(n int) []byte { return []byte("request " + string(rune('a'+n%26))) }
	return &function{name: "echo", body: body, want: func(n int) Hash { return hashOf(body(n)) }, hash: hashOf}
}

// What becomes of requests is recorded: with its own answer, another's, a refusal, none,
// and by callbacks, once, twice, to no request and of a failure.
func TestRecorder(t *testing.T) {
	back, err := newCallbacks()
	if err != nil {
		t.Fatal(err)
	}
	defer back.close()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	call := func(url, status string, body []byte) {
		header := http.Header{"X-Function-Status": {status}}
		if _, _, err := post(t.Context(), client, url, header, body); err != nil {
			t.Error(err)
		}
	}
	var direct, queued atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/function" {
			switch direct.Add(1) {
			case 1:
				body = []byte("another's")
			case 2:
				w.WriteHeader(http.StatusServiceUnavailable)
			case 3:
				panic(http.ErrAbortHandler)
			}
			_, _ = w.Write(body)
			return
		}
		url := r.Header.Get("X-Callback-Url")
		switch queued.Add(1) {
		case 1:
			call(url, "500", nil)
		case 2:
			call(url, "200", body)
			call(url, "200", bytes.Clone(body))
		case 3:
			call(url, "200", body)
			call(strings.TrimSuffix(url, url[strings.LastIndex(url, "/"):])+"/x", "200", body)
			call(back.url+"/0/0/0", "200", body) // Of a run that is over.
		case 4:
			w.WriteHeader(http.StatusInternalServerError)
			return
		default:
			call(url, "200", body)
		}
		w.WriteHeader(http.StatusAccepted)
	}))
	defer s.Close()
	r := back.record(1)
	var targets []load.Target
	for i, path := range []string{"/function", "/async-function"} {
		target := load.Target{URL: s.URL + path, Rate: 100}
		r.add(source{function: echo(), async: i == 1, first: i, step: 2, slo: time.Minute, bound: time.Minute}, &target)
		targets = append(targets, target)
	}
	began, err := r.drive(t.Context(), 0, targets, 100*time.Millisecond, 1)
	if err != nil {
		t.Fatal(err)
	}
	h := r.history(began)
	got := Check(h)
	got.Example = nil
	if want := (Verdict{Requests: 20, Accepted: 19, Lost: 1, Wrong: 2, Failed: 3, Repeated: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if len(h.Strays) != 1 {
		t.Errorf("strays %v", h.Strays)
	}
	for i, q := range h.Requests {
		if q.ID != i || q.Sent < q.Intended || q.Function != "echo" {
			t.Errorf("%+v", q)
		}
	}
}

func TestRefused(t *testing.T) {
	s := httptest.NewServer(nil)
	url := s.URL
	s.Close()
	r := newRecorder(1, "")
	target := load.Target{URL: url, Rate: 100}
	r.add(source{function: echo(), step: 1}, &target)
	began, err := r.drive(t.Context(), 0, []load.Target{target}, 50*time.Millisecond, 1)
	if err != nil {
		t.Fatal(err)
	}
	if v := Check(r.history(began)); v.Refused != 5 || v.Accepted != 0 || v.Lost != 0 {
		t.Errorf("%+v", v)
	}
}
