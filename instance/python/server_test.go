package python_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/instance/python"
)

// In an instance, one request's error is its own. If a handler raises an exception, the
// requests run one by one. A lost process fails the whole batch.
func TestBatchesInAnInstance(t *testing.T) {
	e, l := serve(t, handler(t, head+`
import os, time
def handle(batch):
    print("batch of", len(batch))
    found = [float(r["x"][0, 0]) for r in batch]
    if 5 in found: raise RuntimeError("five")
    if 6 in found: os._exit(6)
    return [ValueError("four") if v == 4 else r["x"] for v, r in zip(found, batch)]
`), func(o *python.Options) { o.Timeout = time.Minute })
	s, err := instance.NewServer(e, instance.Options{Name: "test", MaxBatch: 8, Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		values []string
		want   []string
		calls  int
	}{
		{"good", []string{"1", "2", "3"}, []string{`{"predictions":[[1]]}`, "[[2]]", "[[3]]"}, 1},
		{"one returned error", []string{"1", "4", "3"}, []string{"[[1]]", `{"error":"ValueError: four"}`, "[[3]]"}, 1},
		{"one thrown error", []string{"1", "5", "3"}, []string{"[[1]]", `{"error":"RuntimeError: five"}`, "[[3]]"}, 4},
		{"a lost process", []string{"1", "6", "3"}, []string{"exited with status 6", "exited with status 6", "exited with status 6"}, 1},
		{"after it", []string{"1"}, []string{"[[1]]"}, 1},
	} {
		before := strings.Count(l.String(), "batch of")
		var requests []frame.Request
		for _, v := range c.values {
			requests = append(requests, frame.Request{Method: http.MethodPost, Path: "/", Body: []byte(`{"instances":[[` + v + `]]}`)})
		}
		responses, _ := s.HandleBatch(t.Context(), requests)
		for i, want := range c.want {
			if got := string(responses[i].Body); !strings.Contains(got, want) || (responses[i].Status == http.StatusOK) != strings.Contains(want, "[[") {
				t.Errorf("%s: answer %d is %d %s, want %s", c.name, i, responses[i].Status, got, want)
			}
		}
		l.Await(t, "batch of", before+c.calls)
	}
}
