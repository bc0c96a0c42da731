package provider

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/annotation"
)

// patientFor is the cold wait of these tests. The objective is 50 ms.
const (
	patientFor = 20 * time.Second
	objective  = 50 * time.Millisecond
)

// hanging is a server with functions f-0000 to f-0005, of which as many hang in their
// restoring as are restored at a time.
type hanging struct {
	*rig
	t     *testing.T
	c     *gatedController
	hang  []string
	began time.Time
	ended <-chan struct{}
}

// hangs runs f in a bubble with such a server, and then lets the functions come back.
func hangs(t *testing.T, edit func(o *Options), f func(h *hanging)) {
	synctest.Test(t, func(t *testing.T) {
		h := &hanging{t: t, hang: []string{"f-0000", "f-0001", "f-0002", "f-0003"}, began: time.Now()}
		before, _ := stored(t, 6)
		h.rig, h.c = restarted(t, before, func(o *Options) {
			o.ColdWait = patientFor
			if edit != nil {
				edit(o)
			}
		}, h.hang...)
		h.ended = h.restoring(t, t.Context())
		synctest.Wait()
		f(h)
		for _, gate := range h.c.gates {
			close(gate)
		}
		<-h.ended
		if w := h.do("POST", "/function/f-0000", "x"); w.Code != 200 {
			t.Errorf("once it is back: %d %s", w.Code, w.Body)
		}
		for _, f := range h.list() {
			if f.AvailableReplicas != 1 {
				t.Errorf("%s has %d replicas once it is back", f.Name, f.AvailableReplicas)
			}
		}
	})
}

// after is do that also says when the answer came, since the restoring began.
func (h *hanging) after(method, target, body string) (*httptest.ResponseRecorder, time.Duration) {
	w := h.do(method, target, body)
	return w, time.Since(h.began)
}

func (h *hanging) list() (out []types.FunctionStatus) {
	h.t.Helper()
	w := h.do("GET", "/system/functions", "")
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil || w.Code != 200 {
		h.t.Fatalf("list: %d %s: %v", w.Code, w.Body, err)
	}
	return out
}

// problems returns the functions of a list that have a problem.
func problems(of []types.FunctionStatus) (names []string) {
	for _, f := range of {
		if strings.Contains((*f.Annotations)[annotation.InferProblem], "being restored") && f.AvailableReplicas == 0 {
			names = append(names, f.Name)
		}
	}
	return names
}

// Functions whose restoring hangs do not hold up others, also if they take all places.
func TestHangingFunctionsHoldUpNoOthers(t *testing.T) {
	hangs(t, nil, func(h *hanging) {
		if w, at := h.after("POST", "/function/f-0005", "x"); w.Code != 200 || at != slowRestore {
			t.Errorf("another function: %d after %v, want its answer after %v", w.Code, at, slowRestore)
		}
		if h.c.missing("f-0005.openfaas-fn") || !h.c.missing("f-0000.openfaas-fn") {
			t.Error("the controller does not know which functions are missing")
		}
	})
}

// Lists, descriptions and counts show functions that are not back yet, and do not wait long
// for them.
func TestListsShowHangingFunctions(t *testing.T) {
	hangs(t, nil, func(h *hanging) {
		if got := h.list(); time.Since(h.began) != listPatience || len(got) != 6 || len(problems(got)) != 6 || !slices.IsSortedFunc(got, func(a, b types.FunctionStatus) int { return strings.Compare(a.Name, b.Name) }) {
			t.Errorf("after %v the list has %d functions, with problems %v", time.Since(h.began), len(got), problems(got))
		}
		w, at := h.after("GET", "/system/telemetry", "")
		if at != listPatience || !strings.Contains(w.Body.String(), `"inference":6`) {
			t.Errorf("after %v the telemetry is %s", at, w.Body)
		}
		var one types.FunctionStatus
		if w, at := h.after("GET", "/system/function/f-0000", ""); json.Unmarshal(w.Body.Bytes(), &one) != nil || at != 2*listPatience || len(problems([]types.FunctionStatus{one})) != 1 {
			t.Errorf("after %v it is described as %d %s", at, w.Code, w.Body)
		}
		time.Sleep(slowRestore)
		before := time.Now()
		if got := problems(h.list()); !slices.Equal(got, h.hang) || time.Since(before) > 0 {
			t.Errorf("later, problems of %v are listed after %v, want %v", got, time.Since(before), h.hang)
		}
	})
}

// A replica among others is healthy without the functions that hang.
func TestHangingFunctionsDoNotMakeAReplicaUnhealthy(t *testing.T) {
	hangs(t, func(o *Options) { o.Several = true }, func(h *hanging) {
		time.Sleep(slowRestore - time.Millisecond)
		wantSentence(t, h.do("GET", "/healthz", ""), 503, "restoring")
		time.Sleep(2 * time.Millisecond)
		if w := h.do("GET", "/healthz", ""); w.Code != 200 {
			t.Errorf("health: %d", w.Code)
		}
	})
}

// Requests for a function that hangs wait as long as for a first instance, and changes of it
// for a time.
func TestWaitsForHangingFunctionsAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		method, target, body string
		want                 time.Duration
	}{
		"a request":    {"POST", "/function/f-0000", "x", objective + patientFor},
		"a deployment": {"POST", "/system/functions", deployment(func(d *types.FunctionDeployment) { d.Service = "f-0000" }), changePatience},
		"an update":    {"PUT", "/system/functions", deployment(func(d *types.FunctionDeployment) { d.Service = "f-0000" }), changePatience},
		"a scaling":    {"POST", "/system/scale-function/f-0000", `{"replicas":2}`, changePatience},
		"a removal":    {"DELETE", "/system/functions", `{"functionName":"f-0000"}`, changePatience},
	} {
		t.Run(name, func(t *testing.T) {
			hangs(t, nil, func(h *hanging) {
				w, at := h.after(c.method, c.target, c.body)
				wantSentence(t, w, 503, "f-0000", "restored")
				if name == "a request" {
					wantMisses(t, h.do("GET", "/metrics", "").Body.String(), "f-0000.openfaas-fn", 1, 1)
				}
				if at != c.want || w.Header().Get("Retry-After") != "1" {
					t.Errorf("after %v, want it after %v; %v", at, c.want, w.Header())
				}
			})
		})
	}
	hangs(t, nil, func(h *hanging) {
		for name, ask := range map[string]func(ctx context.Context) error{
			"a change from outside": func(ctx context.Context) error { return h.Adopt(ctx, storedFunction(0)) },
			"a removal from outside": func(ctx context.Context) error {
				return h.Forget(ctx, DefaultNamespace, "f-0001")
			},
			"the namespace": func(ctx context.Context) error { return namespaceRoutes{h.Server}.awaitAll(ctx, DefaultNamespace) },
		} {
			before := time.Now()
			if err := ask(h.t.Context()); !errors.Is(err, ErrArriving) || time.Since(before) != changePatience {
				t.Errorf("%s: %v after %v", name, err, time.Since(before))
			}
		}
		// Nobody has a lock of the namespace for that long.
		before := time.Now()
		h.namespaceLocks.Lock(DefaultNamespace)()
		if time.Since(before) > 0 {
			t.Errorf("the namespace was locked for %v", time.Since(before))
		}
		if _, err := h.Invoke(h.t.Context(), "f-0000", &frame.Request{}); !errors.Is(err, ErrArriving) {
			t.Errorf("a queued request: %v", err)
		}
	})
}

// What a request waits for its function counts as what it waits for an instance.
func TestWaitForAFunctionCounts(t *testing.T) {
	const late = 2 * time.Second
	waited := make(chan time.Duration, 3)
	for name, dispatcher := range map[string]Dispatcher{
		"model": dispatcherFunc(func(ctx context.Context, req *frame.Request) (*frame.Response, error) {
			waited <- req.Waited
			return echo(ctx, req)
		}),
		"ordinary": forwarding{waited: waited},
	} {
		hangs(t, func(o *Options) { o.Controller.(*gatedController).dispatcher = dispatcher }, func(h *hanging) {
			time.AfterFunc(late, func() { h.c.gates["f-0000.openfaas-fn"] <- struct{}{} })
			if w, at := h.after("POST", "/function/f-0000", "x"); w.Code != 200 || at != late {
				t.Errorf("%s: %d after %v", name, w.Code, at)
			}
			if got := <-waited; got != late {
				t.Errorf("%s: it counts as %v", name, got)
			}
			h.do("POST", "/function/f-0000", "x")
			if got := <-waited; got != 0 {
				t.Errorf("%s: for the next request %v count", name, got)
			}
		})
		<-waited // That of the last request of hangs.
	}
}

// forwarding is an ordinary function's dispatcher that answers at once.
type forwarding struct {
	dispatcherFunc
	waited chan time.Duration
}

func (f forwarding) Forward(_ http.ResponseWriter, _ *http.Request, _ string, waited time.Duration, _ func(int64) error) int {
	f.waited <- waited
	return 200
}
