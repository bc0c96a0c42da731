package provider

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/web"
)

// askForEvents sends a request for an answer in parts.
func askForEvents(t *testing.T, server *httptest.Server, path string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+path, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream, application/json")
	resp, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// A client reads each event before the next part exists, and then the end.
func TestAnswersInParts(t *testing.T) {
	next := make(chan string)
	r := invoker(t, func(_ context.Context, req *frame.Request) (*frame.Response, error) {
		for part := range next {
			if err := req.Parts([]byte(part)); err != nil {
				return nil, err
			}
		}
		return &frame.Response{Status: http.StatusOK}, nil
	}, nil)
	server := httptest.NewServer(r.Handler())
	defer server.Close()
	got := make(chan string, 64)
	go func() {
		defer close(got)
		resp := askForEvents(t, server, "/function/mnist")
		got <- resp.Header.Get("Content-Type") + resp.Header.Get("Content-Length")
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			got <- lines.Text()
		}
	}()
	next <- "{\"a\":1}\n"
	for _, want := range []string{"text/event-stream", `data: {"a":1}`, ""} {
		if line := <-got; line != want {
			t.Errorf("%q, want %q", line, want)
		}
	}
	next <- "[\n2]"
	close(next)
	for _, want := range []string{"data: [", "data: 2]", "", "data: [DONE]", ""} {
		if line := <-got; line != want {
			t.Errorf("%q, want %q", line, want)
		}
	}
	if line, more := <-got; more {
		t.Errorf("after the end: %q", line)
	}
	text := r.do("GET", "/metrics", "").Body.String()
	for _, want := range []string{`faas_infer_parts_total{function="mnist.openfaas-fn"} 2`,
		`faas_infer_first_part_duration_seconds_count{function="mnist.openfaas-fn"} 1`,
		`faas_infer_requests_total{code="200",function="mnist.openfaas-fn"} 1`} {
		if !strings.Contains(text, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
}

// An error is an answer of its own before the first part, and afterwards an event in the form of the path.
func TestErrorsOfAnswersInParts(t *testing.T) {
	lost := web.Refuse(http.StatusBadGateway, "it died")
	for _, c := range []struct {
		path, part string
		answer     *frame.Response
		err        error
		status     int
		body       string
	}{
		{"", "", nil, lost, 502, "it died\n"},
		{"", "1", nil, lost, 200, "data: 1\n\ndata: {\"error\":\"it died\"}\n\n"},
		{"/v1/chat/completions", "1", nil, lost, 200,
			"data: 1\n\ndata: {\"error\":{\"message\":\"it died\",\"type\":\"server_error\",\"param\":null,\"code\":\"bad_gateway\"}}\n\n"},
		{"", "1", &frame.Response{Status: 500, Body: []byte("{\"error\":\"thirteen\"}\n")}, nil, 200, "data: 1\n\ndata: {\"error\":\"thirteen\"}\n\n"},
		{"", "", &frame.Response{Status: 200, Header: http.Header{}, Body: []byte("whole")}, nil, 200, "whole"},
	} {
		r := invoker(t, func(_ context.Context, req *frame.Request) (*frame.Response, error) {
			if c.part != "" {
				_ = req.Parts([]byte(c.part))
			}
			return c.answer, c.err
		}, nil)
		server := httptest.NewServer(r.Handler())
		resp := askForEvents(t, server, "/function/mnist"+c.path)
		if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != c.status || string(body) != c.body {
			t.Errorf("%s %q: %d %q, %v; want %d %q", c.path, c.part, resp.StatusCode, body, err, c.status, c.body)
		}
		server.Close()
	}
}

// stuck is a client that takes nothing until it is let.
type stuck struct {
	*httptest.ResponseRecorder
	let chan struct{}
}

func (s *stuck) Write(b []byte) (int, error) {
	<-s.let
	return s.ResponseRecorder.Write(b)
}

// A client that reads too slowly ends its own request only; the one who sends never waits.
func TestSlowReadersLoseParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		part := []byte(strings.Repeat("x", 1<<10))
		sent := 0
		s := &stuck{httptest.NewRecorder(), make(chan struct{})}
		r := invoker(t, func(ctx context.Context, req *frame.Request) (*frame.Response, error) {
			for req.Parts(part) == nil {
				sent++
			}
			if ctx.Err() == nil {
				t.Error("the request goes on")
			}
			time.AfterFunc(time.Second, func() { close(s.let) })
			return &frame.Response{Status: http.StatusOK}, nil
		}, nil)
		q := httptest.NewRequest(http.MethodPost, "/function/mnist", strings.NewReader("{}"))
		q.Header.Set("Accept", "text/event-stream")
		r.Handler().ServeHTTP(s, q)
		if sent < web.MaxUnsentParts/len(part)-1 || sent > web.MaxUnsentParts/len(part)+1 {
			t.Errorf("%d parts of 1 KiB were sent", sent)
		}
		if events := strings.Split(s.Body.String(), "\n\n"); len(events) != sent+2 || !strings.Contains(events[sent], "more slowly than its parts come") {
			t.Errorf("%d events, the last %q", len(events), events[max(0, len(events)-2)])
		}
	})
}

// A client that leaves counts as such.
func TestClientsLeaveAnswersInParts(t *testing.T) {
	ended := make(chan error, 1)
	r := invoker(t, func(ctx context.Context, req *frame.Request) (*frame.Response, error) {
		_ = req.Parts([]byte("1"))
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ctx.Err()
	}, nil)
	server := httptest.NewServer(r.Handler())
	defer server.Close()
	resp := askForEvents(t, server, "/function/mnist")
	if _, err := io.ReadFull(resp.Body, make([]byte, 7)); err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for !strings.Contains(r.do("GET", "/metrics", "").Body.String(), `faas_infer_requests_total{code="499",function="mnist.openfaas-fn"} 1`) {
		time.Sleep(time.Millisecond)
	}
}

// A client that leaves after its first part has missed the objective only if that part was late.
func TestClientsLeaveAfterTheFirstPart(t *testing.T) {
	for _, late := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ctx, leave := context.WithCancel(t.Context())
			r := invoker(t, func(ctx context.Context, req *frame.Request) (*frame.Response, error) {
				if late {
					time.Sleep(time.Minute)
				}
				_ = req.Parts([]byte("1"))
				time.Sleep(time.Minute)
				leave()
				return nil, ctx.Err()
			}, nil)
			q := httptest.NewRequestWithContext(ctx, http.MethodPost, "/function/mnist", strings.NewReader("{}"))
			q.Header.Set("Accept", "text/event-stream")
			r.Handler().ServeHTTP(httptest.NewRecorder(), q)
			want := `faas_infer_slo_misses_total{function="mnist.openfaas-fn"} 0`
			if late {
				want = `faas_infer_slo_misses_total{function="mnist.openfaas-fn"} 1`
			}
			text := r.do("GET", "/metrics", "").Body.String()
			if !strings.Contains(text, `faas_infer_requests_total{code="499",function="mnist.openfaas-fn"} 1`) || !strings.Contains(text, want) {
				t.Errorf("late %v: the metrics lack %s", late, want)
			}
		})
	}
}
