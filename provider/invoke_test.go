package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/web"
)

// invoker is a rig with mnist deployed in front of a dispatcher.
func invoker(t testing.TB, d dispatcherFunc, edit func(o *Options)) *rig {
	t.Helper()
	r := newRig(t, edit)
	r.controller.dispatcher = d
	r.deploy(t, nil)
	r.deploy(t, func(d *types.FunctionDeployment) { d.Namespace = "team-a" })
	return r
}

func TestInvokePaths(t *testing.T) {
	var got *frame.Request
	r := invoker(t, func(ctx context.Context, req *frame.Request) (*frame.Response, error) {
		got = req
		return echo(ctx, req)
	}, nil)
	for target, want := range map[string]string{
		"/function/mnist":                    "/",
		"/function/mnist/":                   "/",
		"/function/%6Dnist%2Eteam%2Da/%2D":   "/%2D",
		"/function/mnist.openfaas-fn":        "/",
		"/function/mnist.team-a?a=b&c=%20":   "/?a=b&c=%20",
		"/function/mnist/v2/models/m/infer":  "/v2/models/m/infer",
		"/function/mnist/a%2Fb%20c%0A//d/..": "/a%2Fb%20c%0A//d/..",
	} {
		w := r.do("POST", target, "body")
		path := got.Path
		if got.Query != "" {
			path += "?" + got.Query
		}
		if w.Code != 200 || path != want || got.Method != "POST" || w.Body.String() != "body" {
			t.Errorf("%s: %d, the function sees %q, want %q", target, w.Code, path, want)
		}
		// What goes into a frame must come out of it: one line, one target.
		buffers, _ := frame.EncodeRequests([]frame.Request{*got})
		if out, err := frame.DecodeRequests(bytes.Join(buffers, nil)); err != nil || out[0].Path != got.Path || out[0].Query != got.Query {
			t.Errorf("%s: the frame gives %+v, %v", target, out, err)
		}
	}
}

func TestInvokeRefusals(t *testing.T) {
	r := invoker(t, echo, func(o *Options) { o.Bodies = web.NewBodyReader(8, DefaultBodyTimeout, DefaultMaxHeld) })
	long := strings.Repeat("x", 300)
	for _, c := range []struct {
		method, target string
		status         int
		words          string
	}{
		{"POST", "/function/absent", 404, `"absent"`},
		{"POST", "/function/mnist.absent", 404, `namespace "absent"`},
		{"POST", "/function/mnist.openfaas-fn.x", 404, "openfaas-fn"},
		{"POST", "/function/" + long, 404, "…"},
		{"POST", "/function/", 400, "names no function"},
		{"POST", "/function//", 400, "names no function"},
		{"POST", "/function/mnist.", 400, "dot"},
		{"POST", "/function/..%2Fmnist", 404, "no function"},
		{"TRACE", "/function/mnist", 405, "TRACE"},
	} {
		wantSentence(t, r.do(c.method, c.target, ""), c.status, c.words)
	}
	wantSentence(t, r.do("POST", "/function/mnist", "123456789"), 413, "8 bytes")
	if w := r.do("POST", "/function/mnist", "12345678"); w.Code != 200 {
		t.Errorf("a body of just the limit: %d", w.Code)
	}
	wantSentence(t, r.do("POST", "/function/mnist", "x", "X-Large", strings.Repeat("y", maxHead)), 431, "headers")
	for body, status := range map[string]int{"12345678": 200, "123456789": 413} {
		req := httptest.NewRequest("POST", "/function/mnist", io.NopCloser(strings.NewReader(body)))
		req.ContentLength = -1
		w := httptest.NewRecorder()
		if r.Handler().ServeHTTP(w, req); w.Code != status {
			t.Errorf("%d bytes in chunks: %d, want %d", len(body), w.Code, status)
		}
	}
	req := httptest.NewRequest("POST", "/function/mnist", strings.NewReader("123"))
	req.ContentLength = 5
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, req)
	wantSentence(t, w, 400, "ended early")
}

// TestInvokeRefusalsOfProtocols checks that the provider refuses requests of the inference protocols
// as JSON: their clients parse every answer.
func TestInvokeRefusalsOfProtocols(t *testing.T) {
	var told error
	r := invoker(t, func(context.Context, *frame.Request) (*frame.Response, error) { return nil, told },
		func(o *Options) { o.Bodies = web.NewBodyReader(8, DefaultBodyTimeout, DefaultMaxHeld) })
	unusual := &frame.Response{Status: 700}
	for _, c := range []struct {
		method, target, body string
		told                 error
		status               int
		retry                string
	}{
		{"POST", "/function/absent/v2/models/m/infer", "", nil, 404, ""},
		{"TRACE", "/function/mnist/v2/models/m/infer", "", nil, 405, ""},
		{"POST", "/function/mnist/v1/models/m:predict", "123456789", nil, 413, ""},
		{"POST", "/function/mnist/v2/models/m/infer", "x", retryError{503, 1500 * time.Millisecond}, 503, "2"},
		{"POST", "/function/mnist/v2/models/m/infer", "x", retryError{429, 0}, 429, "1"},
		{"POST", "/function/mnist/v1/models/m:predict", "x", web.Refuse(502, "the instance was lost"), 502, ""},
		{"POST", "/function/mnist/v2/models/m/infer", "x", context.DeadlineExceeded, 504, ""},
		{"GET", "/function/mnist/v2", "", errors.New("something unexpected"), 500, ""},
		{"POST", "/async-function/mnist/v2/models/m/infer", "", nil, 501, ""},
	} {
		told = c.told
		w := r.do(c.method, c.target, c.body)
		var said struct{ Error string }
		if err := json.Unmarshal(w.Body.Bytes(), &said); err != nil || said.Error == "" || w.Code != c.status ||
			w.Header().Get("Content-Type") != "application/json" || w.Header().Get("Retry-After") != c.retry {
			t.Errorf("%s %s: %d %q %v, %v", c.method, c.target, w.Code, w.Body, w.Header(), err)
		}
	}
	odd := httptest.NewRecorder()
	if writeResponse(odd, "/v2/models/m", unusual); odd.Code != 502 || !json.Valid(odd.Body.Bytes()) {
		t.Errorf("an odd status: %d %q", odd.Code, odd.Body)
	}
}

func TestInvokeHeaders(t *testing.T) {
	var got http.Header
	r := invoker(t, func(_ context.Context, req *frame.Request) (*frame.Response, error) {
		got = req.Header
		return &frame.Response{Status: 201, Body: []byte("{}"), Header: http.Header{"Content-Type": {"application/json"}, "Content-Length": {"99"},
			"Connection": {"X-Hop"}, "X-Hop": {"1"}, "Transfer-Encoding": {"chunked"}, "X-Two": {"1", "2"}}}, nil
	}, nil)
	w := r.do("POST", "/function/mnist", "x", "Connection", "close, x-mine", "X-Mine", "1", "Te", "trailers", "Upgrade", "h2c",
		"Expect", "100-continue", "Content-Type", "text/x", "Authorization", "Bearer t", "X-Call-Id", "c1", "X-Start-Time", "7")
	want := http.Header{"Content-Type": {"text/x"}, "Authorization": {"Bearer t"}, "X-Call-Id": {"c1"}, "X-Start-Time": {"7"},
		"X-Forwarded-Host": {"example.com"}, "X-Forwarded-For": {"192.0.2.1:1234"}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the function sees %v\nwant %v", got, want)
	}
	answered := http.Header{"Content-Type": {"application/json"}, "Content-Length": {"2"}, "X-Two": {"1", "2"}, "X-Call-Id": {"c1"}, "X-Start-Time": {"7"}}
	if w.Code != 201 || fmt.Sprint(w.Header()) != fmt.Sprint(answered) {
		t.Errorf("answer %d %v, want %v", w.Code, w.Header(), answered)
	}
	r.do("POST", "/function/mnist", "x", "X-Forwarded-For", "1.2.3.4", "X-Forwarded-Host", "gateway")
	if got.Get("X-Forwarded-For") != "1.2.3.4" || got.Get("X-Forwarded-Host") != "gateway" {
		t.Errorf("forwarded headers overwritten: %v", got)
	}
}

func TestInvokeErrors(t *testing.T) {
	var told error
	r := invoker(t, func(context.Context, *frame.Request) (*frame.Response, error) { return nil, told }, nil)
	for _, c := range []struct {
		err    error
		status int
		retry  string
	}{
		{retryError{503, 1500 * time.Millisecond}, 503, "2"},
		{fmt.Errorf("mnist: %w", retryError{429, 0}), 429, "1"},
		{retryError{502, 0}, 502, ""},
		{web.Refuse(502, "the instance was lost"), 502, ""},
		{web.Refuse(503, "no instance can be had"), 503, "1"},
		{web.Refuse(200, "an error that calls itself a success"), 500, ""},
		{errors.New("something unexpected"), 500, ""},
		{context.DeadlineExceeded, 504, ""},
		{context.Canceled, 499, ""},
	} {
		told = c.err
		w := r.do("POST", "/function/mnist", "x")
		wantSentence(t, w, c.status, c.err.Error())
		if got := w.Header().Get("Retry-After"); got != c.retry {
			t.Errorf("%v: Retry-After %q, want %q", c.err, got, c.retry)
		}
	}
}

func TestInvokeOddAnswers(t *testing.T) {
	var answer *frame.Response
	r := invoker(t, func(context.Context, *frame.Request) (*frame.Response, error) { return answer, nil }, nil)
	for _, status := range []int{0, 101, 199, 600, -1} {
		answer = &frame.Response{Status: status}
		wantSentence(t, r.do("GET", "/function/mnist", ""), 502, "status")
	}
	server := httptest.NewServer(r.Handler())
	defer server.Close()
	client := server.Client()
	defer client.CloseIdleConnections()
	for _, c := range []struct {
		method       string
		status, size int
	}{{"GET", 204, 0}, {"GET", 304, 0}, {"HEAD", 200, 0}, {"GET", 500, 4}, {"GET", 404, 4}} {
		answer = &frame.Response{Status: c.status, Body: []byte("body")}
		req, _ := http.NewRequest(c.method, server.URL+"/function/mnist", nil)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if text := readAll(t, resp.Body); resp.StatusCode != c.status || len(text) != c.size || resp.Header.Get("X-OpenFaaS-Internal") != "" {
			t.Errorf("%s %d: %d %q", c.method, c.status, resp.StatusCode, text)
		}
		resp.Body.Close()
	}
}

func TestPanicsAreAnswered(t *testing.T) {
	r := invoker(t, func(context.Context, *frame.Request) (*frame.Response, error) { panic("a mistake") }, nil)
	wantSentence(t, r.do("POST", "/function/mnist", "x"), 500, "its log has the details")
	if r.inFlight.Inside() != 0 {
		t.Error("the request is still counted as in flight")
	}
	if text := r.do("GET", "/metrics", "").Body.String(); !strings.Contains(text, `faas_infer_requests_total{code="500",function="mnist.openfaas-fn"} 1`) {
		t.Error("the request was not counted")
	}
}

// Every request that reaches the dispatcher fits into a frame and comes out of it
// unchanged, so it cannot spoil the batch that it joins.
func FuzzInvoke(f *testing.F) {
	f.Add("POST", "mnist/v2/models/m/infer", "v", []byte("body"))
	f.Add("GET", "mnist.team-a?x=%0a b", "close, x-header", []byte{})
	f.Add("POST", "mnist//%2e%2e/\xff?%zz", "a\r\nb", []byte("x"))
	f.Add("BREW", "..%2f", "", []byte(nil))
	var got *frame.Request
	r := invoker(f, func(ctx context.Context, req *frame.Request) (*frame.Response, error) {
		got = req
		return echo(ctx, req)
	}, nil)
	f.Fuzz(func(t *testing.T, method, target, value string, body []byte) {
		at, err := url.ParseRequestURI("/function/" + target)
		if err != nil || strings.Contains(target, "#") {
			return // the HTTP server refuses these itself
		}
		got = nil
		w := httptest.NewRecorder()
		r.Handler().ServeHTTP(w, &http.Request{Method: method, URL: at, Header: http.Header{"X-Header": {value}, "Connection": {value}},
			Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Host: "h", RemoteAddr: "a"})
		if got == nil {
			if w.Code < 400 || w.Code == 500 {
				t.Fatalf("%q %q: not dispatched, answered %d %s", method, target, w.Code, w.Body)
			}
			return
		}
		buffers, _ := frame.EncodeRequests([]frame.Request{*got})
		out, err := frame.DecodeRequests(bytes.Join(buffers, nil))
		if err != nil || len(out) != 1 || out[0].Path != got.Path || out[0].Query != got.Query || !bytes.Equal(out[0].Body, body) {
			t.Fatalf("%q %q: %+v became %+v, %v", method, target, got, out, err)
		}
	})
}

// The share of requests that were answered in time counts those that the provider refused.
func TestAttainmentCountsRefusals(t *testing.T) {
	answers := map[string]func() (*frame.Response, error){
		"in time":  func() (*frame.Response, error) { return &frame.Response{Status: 200}, nil },
		"late":     func() (*frame.Response, error) { return &frame.Response{Status: 200, Late: true}, nil },
		"failed":   func() (*frame.Response, error) { return &frame.Response{Status: 500}, nil },
		"mistaken": func() (*frame.Response, error) { return &frame.Response{Status: 400}, nil },
		"busy":     func() (*frame.Response, error) { return nil, retryError{503, time.Second} },
		"many":     func() (*frame.Response, error) { return nil, retryError{429, time.Second} },
	}
	r := invoker(t, func(_ context.Context, req *frame.Request) (*frame.Response, error) {
		return answers[string(req.Body)]()
	}, nil)
	for body, n := range map[string]int{"in time": 76, "late": 1, "failed": 3, "mistaken": 9, "busy": 15, "many": 5} {
		for range n {
			r.do("POST", "/function/mnist", body)
		}
	}
	if _, err := r.Invoke(t.Context(), "mnist", &frame.Request{Body: []byte("late")}); err != nil { // From the queue.
		t.Fatal(err)
	}
	wantMisses(t, r.do("GET", "/metrics", "").Body.String(), "mnist.openfaas-fn", 101, 25)
	// Those that are refused before they are read count as well.
	r.inFlight.Close()
	r.do("POST", "/function/mnist", "in time")
	wantMisses(t, r.do("GET", "/metrics", "").Body.String(), "mnist.openfaas-fn", 102, 26)
}

// wantMisses looks for a function's requests that count for its objective, and those that missed it.
func wantMisses(t *testing.T, metrics, function string, requests, misses int) {
	t.Helper()
	for name, n := range map[string]int{"requests": requests, "misses": misses} {
		if want := fmt.Sprintf("faas_infer_slo_%s_total{function=%q} %d\n", name, function, n); !strings.Contains(metrics, want) {
			t.Errorf("the metrics lack %q: %s", want, metrics)
		}
	}
}
