package async

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/async/queue"
	"github.com/faas-infer/faas-infer/provider/async/retry"
)

// recorder is a server that callbacks go to; it returns its URL.
func recorder(t testing.TB, handle http.HandlerFunc) string {
	s := httptest.NewServer(handle)
	t.Cleanup(s.Close)
	return s.URL
}

func echo(_ context.Context, _ string, r *frame.Request) (*frame.Response, error) {
	return &frame.Response{Status: 201, Header: http.Header{"Content-Type": {"text/x"}, "X-Own": {"1"}, "Content-Length": {"7"}}, Body: r.Body}, nil
}

func TestCallback(t *testing.T) {
	type call struct {
		*http.Request
		body string
	}
	calls := make(chan call, 1)
	var tries atomic.Int32
	server := recorder(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if tries.Add(1) == 1 {
			w.WriteHeader(503)
			return
		}
		calls <- call{r, string(body)}
	})
	r := start(t, echo, nil)
	w := r.do("POST", "/async-function/echo", "hello", "X-Callback-Url", server+"/back?x=y", "Authorization", "Bearer secret")
	if w.Code != 202 {
		t.Fatal(w.Body)
	}
	c := <-calls
	h := c.Header
	if c.Method != "POST" || c.URL.RequestURI() != "/back?x=y" || c.body != "hello" || h.Get("Content-Type") != "text/x" || h.Get("X-Own") != "1" ||
		h.Get("X-Function-Name") != "echo" || h.Get("X-Function-Status") != "201" || h.Get("X-Duration-Seconds") == "" ||
		h.Get("X-Call-Id") != w.Header().Get("X-Call-Id") || h.Get("X-Call-Id") == "" || h.Get("X-Start-Time") != w.Header().Get("X-Start-Time") || h.Get("Authorization") != "" {
		t.Errorf("called back with %s %s %q %v", c.Method, c.URL, c.body, h)
	}
	until(t, "an empty queue", func() bool { s, err := r.Status(t.Context()); return err == nil && s.Queued+uint64(s.InFlight) == 0 })
	if text := gather(t, r); !strings.Contains(text, `faas_infer_async_callbacks_total{class="5xx"} 1`) || !strings.Contains(text, `faas_infer_async_callbacks_total{class="2xx"} 1`) ||
		!strings.Contains(text, `faas_infer_async_accepted_total{function="echo.openfaas-fn"} 1`) {
		t.Errorf("metrics:\n%s", text)
	}
}

// A callback that cannot be delivered makes a dead letter; the function is not
// executed again.
func TestCallbackFaults(t *testing.T) {
	hang := make(chan struct{})
	hanging := recorder(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // Only then does a server notice that its client hangs up.
		select {
		case <-hang:
		case <-r.Context().Done():
		}
	})
	defer close(hang)
	gone := httptest.NewServer(nil)
	gone.Close()
	inner := recorder(t, func(http.ResponseWriter, *http.Request) { t.Error("a redirect led into the private network") })
	redirect := recorder(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, inner, http.StatusTemporaryRedirect) })
	loop := ""
	loop = recorder(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, loop, http.StatusFound) })
	no := recorder(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(410) })
	for _, c := range []struct{ name, url, want string }{
		{"refuses", gone.URL, "refused"}, {"hangs", hanging, "deadline"}, {"redirects inside", redirect, "not a public address"},
		{"redirects for ever", loop, "not a public address"}, {"answers 410", no, "410"},
	} {
		t.Run(c.name, func(t *testing.T) {
			timeout := time.Minute
			if c.url == hanging {
				timeout = 200 * time.Millisecond
			}
			var executed atomic.Int32
			r := start(t, func(ctx context.Context, n string, f *frame.Request) (*frame.Response, error) {
				executed.Add(1)
				return echo(ctx, n, f)
			}, func(o *Options) { o.Callback.Timeout = timeout; o.CallbackAttempts = 2 })
			r.enqueue(t, "echo", "x", "X-Callback-Url", c.url)
			l := r.letters(t, 1)[0]
			if l.Reason != retry.Undelivered || !strings.Contains(l.Detail, c.want) || l.Status != 201 || executed.Load() != 1 {
				t.Errorf("letter %+v after %d executions, want detail %q", l, executed.Load(), c.want)
			}
		})
	}
}

// Results that wait for their callback leave their function's places to others.
func TestCallbackThatHangsHoldsUpNoExecution(t *testing.T) {
	hanging := recorder(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // Only then does a server notice that its client hangs up.
		<-r.Context().Done()
	})
	var executed atomic.Int32
	r := start(t, func(ctx context.Context, n string, f *frame.Request) (*frame.Response, error) {
		executed.Add(1)
		return echo(ctx, n, f)
	}, func(o *Options) { o.Concurrency = 4; o.Callback.Timeout = time.Minute })
	for range 8 {
		r.enqueue(t, "echo", "x", "X-Callback-Url", hanging)
	}
	for range 8 {
		r.enqueue(t, "echo", "x")
	}
	until(t, "all are executed", func() bool { return executed.Load() == 16 })
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	started := time.Now()
	r.Close(ctx)
	// Who waits for a callback takes a minute.
	if d := time.Since(started); d > 30*time.Second {
		t.Errorf("closing took %v", d)
	}
}

func TestAcceptRefuses(t *testing.T) {
	r := start(t, echo, func(o *Options) { o.MaxBody = 10 })
	for _, c := range []struct {
		method, target, body string
		header               []string
		code                 int
		want                 string
	}{
		{"PUT", "/async-function/echo", "", nil, 405, "POST"},
		{"POST", "/async-function/absent", "", nil, 404, `no function "absent"`},
		{"POST", "/async-function/echo.other", "", nil, 404, `"other"`},
		{"POST", "/async-function/Bad_Name", "", nil, 404, "Bad_Name"},
		{"POST", "/async-function/", "", nil, 404, "no function"},
		{"POST", "/async-function/echo", "12345678901", nil, 413, "10 bytes"},
		{"POST", "/async-function/echo", "", []string{"X-Callback-Url", "/relative"}, 400, "http://"},
		{"POST", "/async-function/echo", "", []string{"X-Callback-Url", "ftp://host/x"}, 400, "http://"},
		{"POST", "/async-function/echo", "", []string{"X-Callback-Url", "http://"}, 400, "host"},
		{"POST", "/async-function/echo", "", []string{"X-Callback-Url", "http://a b/"}, 400, "X-Callback-Url"},
		{"POST", "/async-function/echo", "", []string{"X-Big", strings.Repeat("x", 61<<10)}, 400, "Header"},
		{"PUT", "/system/async", "", nil, 405, "GET"},
		{"GET", "/system/async/none", "", nil, 404, "route"},
		{"GET", "/system/async/dead/x", "", nil, 400, "sequence"},
		{"GET", "/system/async/dead/7", "", nil, 404, "no dead letter 7"},
		{"DELETE", "/system/async/dead/7", "", nil, 404, "no dead letter 7"},
		{"GET", "/system/async/dead?limit=x", "", nil, 400, "limit"},
		{"POST", "/system/async/dead/replay", "{}", nil, 400, "sequences"},
		{"POST", "/system/async/dead/replay", "[", nil, 400, "sequences"},
		{"POST", "/system/async/dead/replay", `{"all":true,"sequences":[1]}`, nil, 400, "sequences"},
	} {
		w := r.do(c.method, c.target, c.body, c.header...)
		if w.Code != c.code || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s %s %v: %d %s, want %d %q", c.method, c.target, c.header, w.Code, w.Body, c.code, c.want)
		}
	}
	u, _ := url.Parse("http://user:pass@host/")
	if queue.Redacted(u) != "http://user:xxxxx@host/" {
		t.Error(queue.Redacted(u))
	}
}

func gather(t testing.TB, r *rig) string {
	t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, f := range families {
		for _, m := range f.GetMetric() {
			b.WriteString(f.GetName())
			b.WriteString("{")
			for i, l := range m.GetLabel() {
				if i > 0 {
					b.WriteString(",")
				}
				b.WriteString(l.GetName() + `="` + l.GetValue() + `"`)
			}
			b.WriteString("} ")
			value := m.GetCounter().GetValue() + m.GetGauge().GetValue()
			b.WriteString(strconv.FormatFloat(value, 'g', -1, 64))
			b.WriteString("\n")
		}
	}
	return b.String()
}
