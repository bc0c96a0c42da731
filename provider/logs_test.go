package provider

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/logs"
)

// fakeLogs has messages, and further ones for clients that follow.
type fakeLogs struct {
	messages []logs.Message
	more     chan logs.Message
	err      error
	asked    logs.Request
}

func (f *fakeLogs) Query(ctx context.Context, q logs.Request) (<-chan logs.Message, error) {
	f.asked = q
	if f.err != nil {
		return nil, f.err
	}
	out := make(chan logs.Message, 2)
	messages := f.messages
	go func() {
		defer close(out)
		for _, m := range messages {
			select {
			case out <- m:
			case <-ctx.Done():
				return
			}
		}
		for q.Follow {
			select {
			case m := <-f.more:
				out <- m
			case <-ctx.Done():
				return
			}
		}
	}()
	return out, nil
}

func message(text string) logs.Message {
	return logs.Message{Name: "mnist", Namespace: "openfaas-fn", Instance: "mnist-1", Timestamp: now, Text: text}
}

func TestLogQueries(t *testing.T) {
	f := &fakeLogs{}
	r := newRig(t, func(o *Options) { o.Logs = f })
	r.deploy(t, nil)
	ago := func(d time.Duration) *time.Time { at := now.Add(-d); return &at }
	in := time.FixedZone("", 2*3600)
	abroad := time.Date(2026, 11, 21, 12, 0, 0, 0, in)
	for query, want := range map[string]logs.Request{
		"name=mnist":                                    {},
		"name=mnist.openfaas-fn":                        {},
		"name=mnist&namespace=openfaas-fn":              {},
		"name=mnist&follow=0&tail=5":                    {Tail: 5},
		"name=mnist&follow=false&tail=-1":               {Tail: -1}, // faas-cli says so by default.
		"name=mnist&instance=mnist-1":                   {Instance: "mnist-1"},
		"name=mnist&since=10m":                          {Since: ago(10 * time.Minute)},
		"name=mnist&since=0s":                           {Since: ago(0)},
		"name=mnist&since=2026-11-21T11%3A00%3A00Z":     {Since: ago(time.Hour)},
		"name=mnist&since=2026-11-21T12:00:00.0+02:00":  {Since: &abroad},
		"name=mnist&since=&tail=&follow=&instance=&x=y": {},
	} {
		want.Name, want.Namespace = "mnist", "openfaas-fn"
		w := r.do("GET", "/system/logs?"+query, "")
		same := (f.asked.Since == nil) == (want.Since == nil) && (want.Since == nil || f.asked.Since.Equal(*want.Since))
		f.asked.Since, want.Since = nil, nil
		if w.Code != 200 || f.asked != want || !same {
			t.Errorf("%s: %d %s, asked %v", query, w.Code, w.Body, f.asked)
		}
	}
	for query, c := range map[string]struct {
		status int
		words  string
	}{
		"":                                     {400, "name is not set"},
		"namespace=openfaas-fn":                {400, "name is not set"},
		"name=mnist.":                          {400, "ends in a dot"},
		"name=mnist.a&namespace=b":             {400, "two namespaces"},
		"name=mnist&follow=perhaps":            {400, `follow is "perhaps"`},
		"name=mnist&tail=many":                 {400, `tail is "many"`},
		"name=mnist&tail=1.5":                  {400, "tail"},
		"name=mnist&tail=99999999999999999999": {400, "tail"},
		"name=mnist&since=yesterday":           {400, `since is "yesterday"`},
		"name=mnist&since=-5m":                 {400, "since"},
		"name=nobody":                          {404, "nobody"},
		"name=mnist&namespace=nowhere":         {404, "nowhere"},
		"name=..%2F..%2Fetc":                   {404, "etc"},
		"name=mnist&namespace=..":              {404, ".."},
		"name=" + strings.Repeat("x", 200):     {404, "xxx…"},
	} {
		wantSentence(t, r.do("GET", "/system/logs?"+query, ""), c.status, c.words)
	}
	f.err = errors.New("the disk is gone")
	wantSentence(t, r.do("GET", "/system/logs?name=mnist", ""), 500, "disk is gone")
	wantSentence(t, newRig(t, nil).do("GET", "/system/logs?name=mnist", ""), 501, "keeps no logs")
}

func TestLogsAreLinesOfJSON(t *testing.T) {
	f := &fakeLogs{messages: []logs.Message{message("a <b>\n\"c\""), message("two"), message("three"), message("four")}}
	r := newRig(t, func(o *Options) { o.Logs = f })
	// Not deployed (any more), but there is something.
	w := r.do("GET", "/system/logs?name=mnist&follow=1", "")
	if w.Code != 200 || w.Header().Get("Content-Type") != "application/x-ndjson" || f.asked.Follow {
		t.Errorf("%d %v, asked %v", w.Code, w.Header(), f.asked)
	}
	lines := strings.Split(strings.TrimSuffix(w.Body.String(), "\n"), "\n")
	if len(lines) != 4 || lines[0] != `{"name":"mnist","namespace":"openfaas-fn","instance":"mnist-1","timestamp":"2026-11-21T12:00:00Z","text":"a <b>\n\"c\""}` {
		t.Errorf("lines %q", lines)
	}
}

// following is a client that follows mnist's logs.
func following(t *testing.T, r *rig) (*bufio.Scanner, *http.Response) {
	t.Helper()
	server := httptest.NewServer(r.Handler())
	t.Cleanup(server.Close)
	return follow(t, server)
}

func follow(t *testing.T, server *httptest.Server) (*bufio.Scanner, *http.Response) {
	t.Helper()
	resp, err := http.Get(server.URL + "/system/logs?name=mnist&follow=true")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return bufio.NewScanner(resp.Body), resp
}

func text(t *testing.T, s *bufio.Scanner) string {
	t.Helper()
	var m logs.Message
	if !s.Scan() || json.Unmarshal(s.Bytes(), &m) != nil {
		t.Fatalf("read %q, %v", s.Text(), s.Err())
	}
	return m.Text
}

// Each message is sent before the server waits for the next, and headers before the first.
func TestFollowedLogsAreNotHeldBack(t *testing.T) {
	f := &fakeLogs{more: make(chan logs.Message)}
	r := newRig(t, func(o *Options) { o.Logs = f })
	r.deploy(t, nil)
	lines, _ := following(t, r)
	for _, want := range []string{"one", "two", "three"} {
		f.more <- message(want)
		if got := text(t, lines); got != want {
			t.Errorf("read %q, want %q", got, want)
		}
	}
}

// A client that follows logs must not hold up shutdown.
func TestShutdownEndsFollowing(t *testing.T) {
	f := &fakeLogs{more: make(chan logs.Message)}
	r := newRig(t, func(o *Options) { o.Logs = f })
	r.deploy(t, nil)
	lines, resp := following(t, r)
	if resp.StatusCode != 200 {
		t.Fatalf("status %d", resp.StatusCode)
	}
	for range 2 {
		if err := r.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if lines.Scan() || lines.Err() != nil {
		t.Errorf("after shutdown: %q, %v", lines.Text(), lines.Err())
	}
}

// A client that does not read holds up nobody else.
func TestASlowReaderOfLogsIsAlone(t *testing.T) {
	many := make([]logs.Message, 500)
	for i := range many {
		many[i] = message(strings.Repeat("x", 64<<10))
	}
	f := &fakeLogs{messages: many, more: make(chan logs.Message)}
	r := newRig(t, func(o *Options) { o.Logs = f })
	r.deploy(t, nil)
	slowServer := httptest.NewServer(r.Handler())
	_, slow := follow(t, slowServer)
	f.messages = nil
	lines, _ := following(t, r)
	f.more <- message("for the other")
	if got := text(t, lines); got != "for the other" {
		t.Errorf("read %.80q", got)
	}
	if w := r.do("POST", "/function/mnist", "x"); w.Code != 200 {
		t.Errorf("invoke: %d", w.Code)
	}
	// It does not keep the provider from going either.
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	slowServer.Close()
	slow.Body.Close()
}

func TestLogsWithOpenFaaSClient(t *testing.T) {
	f := &fakeLogs{messages: []logs.Message{message("one"), message("two")}, more: make(chan logs.Message)}
	r := newRig(t, func(o *Options) { o.Logs, o.Credentials = f, credentials })
	c := client(t, r)
	r.credentials = nil // Only for the deployment.
	r.deploy(t, nil)
	r.credentials = credentials
	ctx, cancel := context.WithCancel(t.Context())
	since := now.Add(-time.Minute)
	messages, err := c.GetLogs(ctx, "mnist", "openfaas-fn", true, 5, &since)
	if err != nil {
		t.Fatal(err)
	}
	f.more <- message("three")
	for _, want := range []string{"one", "two", "three"} {
		if m := <-messages; m.Text != want || m.Name != "mnist" || m.Instance != "mnist-1" || !m.Timestamp.Equal(now) {
			t.Errorf("message %v, want %s", m, want)
		}
	}
	if f.asked.Tail != 5 || !f.asked.Since.Equal(since) {
		t.Errorf("asked %v", f.asked)
	}
	cancel()
	for range messages {
	}
	none := client(t, newRig(t, func(o *Options) { o.Logs = &fakeLogs{} }))
	if _, err := none.GetLogs(t.Context(), "nobody", "", false, 0, nil); err == nil || !strings.Contains(err.Error(), "nobody not found") {
		t.Errorf("a function that is not there: %v", err)
	}
}

func FuzzLogQueries(f *testing.F) {
	for _, q := range []string{"name=mnist&tail=5&since=5m&follow=1", "name=mnist&since=2026-11-21T11:00:00+02:00", "name=a%00b", "name=%ff&tail=-9", "since=1e9h&name=x.y.z", "%zz"} {
		f.Add(q)
	}
	source := &fakeLogs{more: make(chan logs.Message)}
	r := newRig(f, func(o *Options) { o.Logs = source })
	f.Fuzz(func(t *testing.T, query string) {
		source.asked = logs.Request{}
		req := httptest.NewRequest("GET", "/system/logs", nil)
		req.URL = &url.URL{Path: "/system/logs", RawQuery: query}
		w := httptest.NewRecorder()
		r.Handler().ServeHTTP(w, req)
		if w.Code != 400 && w.Code != 404 || strings.Count(w.Body.String(), "\n") != 1 || w.Body.Len() > 1000 {
			t.Errorf("%q: %d %s", query, w.Code, w.Body)
		}
		if strings.ContainsAny(source.asked.Name+source.asked.Namespace, "/.\x00") {
			t.Errorf("%q asked for %v", query, source.asked)
		}
	})
}
