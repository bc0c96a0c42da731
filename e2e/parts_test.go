package e2e

import (
	"bufio"
	"encoding/base64"
	"io"
	"net/http"
	"strings"
	"testing"
)

// endless yields three parts, or never ends for a request of 7.
const endless = `
import time
inputs = {"x": ("float32", [1])}
outputs = {"y": ("float32", [None])}
def handle(batch):
    step, ended = 0, False
    try:
        while step < 3 or any(r["x"][0, 0] == 7 for r in batch):
            if step > 2: time.sleep(0.01)
            yield [{"y": r["x"] + step} for r in batch]
            step += 1
        ended = True
    finally:
        if not ended: print("closed in step", step)
`

// events asks for an answer in parts.
func events(t *testing.T, c *http.Client, url, body string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// A handler that yields answers in parts, which a client gets through the stock gateway, too, before the last one is
// computed. A client that leaves ends them.
func TestAnswerInParts(t *testing.T) {
	p := gatewayPlace(t)
	p.pythonBundle(t, "endless", endless)
	s := p.upBehind(t)
	f := scaled(limited(function("endless", "endless:latest", "30s"), "512Mi"), "1", "1")
	if status, err := s.faas.Deploy(t.Context(), f); err != nil || status != http.StatusAccepted {
		t.Fatal(status, err)
	}
	s.await(t, patience, "an answer", func() bool {
		return do(t, s.http, http.MethodPost, s.through("endless"), []byte(`{"instances":[[1]]}`)).status == http.StatusOK
	})
	password := "Basic " + base64.StdEncoding.EncodeToString([]byte("admin:"+s.password))
	for i, door := range []string{s.url, s.door} {
		url := door + "/function/endless"
		resp := events(t, s.http, url, `{"instances":[[7]]}`)
		if got := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || got != "text/event-stream" {
			t.Fatalf("%s: %d, %s", url, resp.StatusCode, got)
		}
		lines := bufio.NewScanner(resp.Body)
		for _, want := range []string{`data: {"predictions":[[7]]}`, "", `data: {"predictions":[[8]]}`, "", `data: {"predictions":[[9]]}`} {
			if !lines.Scan() || lines.Text() != want {
				t.Fatalf("%s: %q, %v; want %q", url, lines.Text(), lines.Err(), want)
			}
		}
		resp.Body.Close()
		s.await(t, patience, "the end of the handler's run, in the logs", func() bool {
			logs := do(t, s.http, http.MethodGet, s.url+"/system/logs?name=endless&follow=false", nil, "Authorization", password).body
			return strings.Count(logs, "closed in step") > i
		})
		// The instance serves the next ones, as a whole or in parts.
		if a := do(t, s.http, http.MethodPost, url, []byte(`{"instances":[[1]]}`)); a.status != http.StatusOK || !strings.Contains(a.body, `{"predictions":[[1,2,3]]}`) {
			t.Errorf("%s: %d %s", url, a.status, a.body)
		}
		body, err := io.ReadAll(events(t, s.http, url, `{"instances":[[1],[2]]}`).Body)
		if want := "data: {\"predictions\":[[1],[2]]}\n\ndata: {\"predictions\":[[2],[3]]}\n\ndata: {\"predictions\":[[3],[4]]}\n\ndata: [DONE]\n\n"; err != nil || string(body) != want {
			t.Errorf("%s: %q, %v; want %q", url, body, err, want)
		}
	}
	s.stop(t)
}
