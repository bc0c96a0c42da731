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

// A handler that forks, and returns in both processes, gives one answer: a second one would be that of the next
// batch. A process that it leaves behind does not hide that its own has ended.
func TestHandlersThatFork(t *testing.T) {
	e, l := serve(t, handler(t, head+`
import os, signal
def handle(batch):
    value = batch[0]["x"][0, 0]
    if value < 0:
        if value == -1 and os.fork() == 0: signal.pause()
        if value == -2: os.system("sleep 600 &")
        os._exit(7)
    os.fork()
    return [r["x"] for r in batch]
`), func(o *python.Options) { o.Timeout = time.Minute })
	s, err := instance.NewServer(e, instance.Options{Name: "test", MaxBatch: 8, Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct{ value, want string }{
		{"1", "[[1]]"}, {"2", "[[2]]"}, {"3", "[[3]]"}, {"4", "[[4]]"}, {"-1", "exited with status 7"}, {"5", "[[5]]"}, {"-2", "exited with status 7"}, {"6", "[[6]]"},
	} {
		responses, _ := s.HandleBatch(t.Context(), []frame.Request{{Method: http.MethodPost, Path: "/", Body: []byte(`{"instances":[[` + c.value + `]]}`)}})
		if got := string(responses[0].Body); !strings.Contains(got, c.want) {
			t.Errorf("answer %d to %s is %d %s, want %s\n%s", i, c.value, responses[0].Status, got, c.want, l)
		}
	}
}
