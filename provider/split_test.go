package provider

import (
	"context"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/web"
)

// breaking is a forwarder whose answers break off.
type breaking struct{ dispatcherFunc }

func (breaking) Forward(http.ResponseWriter, *http.Request, string, time.Duration, func(int64) error) int {
	panic(http.ErrAbortHandler)
}

// TestBrokenAnswersCount: a program whose answer breaks off has failed.
func TestBrokenAnswersCount(t *testing.T) {
	x := &split{}
	x.ready.Store(true)
	x.candidate.Store(&deployed{Function: &Function{}, forwarder: breaking{}})
	d := &deployed{Function: &Function{}, forwarder: breaking{}, rollout: newRollout(x)}
	for side, counts := range map[string]*sideCounts{"always": &x.next, "never": &x.present} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set(canaryHeader, side)
		func() {
			defer func() {
				if recover() != http.ErrAbortHandler {
					t.Error("the panic is lost")
				}
			}()
			d.forwardSplit(httptest.NewRecorder(), r, "/", 0, nil)
		}()
		if got := counts.side(); got.Failed != 1 || got.Answered != 1 {
			t.Errorf("%s: %+v", side, got)
		}
	}
	if n := x.outstanding.Load(); n != 0 {
		t.Errorf("%d are outstanding", n)
	}
}

// TestStalledCopyIsOneMiss: requests that come while a copy stalls are no misses of their own.
func TestStalledCopyIsOneMiss(t *testing.T) {
	x := &split{}
	x.ready.Store(true)
	x.proving.Store(true)
	next := &deployed{Function: &Function{}}
	next.Inference.SLO = time.Hour
	x.candidate.Store(next)
	x.copies.Store(1)
	x.copiedAt.Store(time.Now().Add(-2 * time.Hour).UnixNano())
	for range 100 {
		if x.copyOf(&frame.Request{}) != nil {
			t.Fatal("it was copied")
		}
	}
	if got := x.next.side(); got.Missed != 1 {
		t.Errorf("%+v", got)
	}
}

// TestCandidateIsStuck: the present revision answers after the objective, which the request has missed.
func TestCandidateIsStuck(t *testing.T) {
	stuck := dispatcherFunc(func(ctx context.Context, _ *frame.Request) (*frame.Response, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	failing := dispatcherFunc(func(context.Context, *frame.Request) (*frame.Response, error) {
		return nil, web.Refuse(http.StatusBadGateway, "it died")
	})
	for name, c := range map[string]struct {
		next dispatcherFunc
		once bool
	}{"stuck": {stuck, false}, "must not run twice": {failing, true}} {
		x := &split{}
		x.ready.Store(true)
		next, d := &deployed{Function: &Function{}, dispatcher: c.next}, &deployed{Function: &Function{}, dispatcher: saying("old"), rollout: newRollout(x)}
		d.Inference.SLO = time.Millisecond
		x.candidate.Store(next)
		resp, err := d.invoke(t.Context(), &frame.Request{Once: c.once, Header: http.Header{canaryHeader: {"always"}}})
		if c.once {
			if resp != nil || web.StatusOf(err) != http.StatusBadGateway {
				t.Errorf("%s: %v %v", name, resp, err)
			}
			continue
		}
		if err != nil || string(resp.Body) != "old" || !resp.Late {
			t.Errorf("%s: %+v %v", name, resp, err)
		}
		if got := x.next.side(); got.Missed != 1 || got.Failed != 0 || x.present.side().Missed != 0 || x.copied.Load() != 0 {
			t.Errorf("%s: %+v, present %+v", name, got, x.present.side())
		}
	}
}

// TestCandidateAnswersInParts: a candidate has the objective for the first part. From then on the answer is its own.
func TestCandidateAnswersInParts(t *testing.T) {
	for name, c := range map[string]struct {
		first, rest time.Duration
		fails       error
		want        string
		late        bool
	}{
		"in time": {0, time.Minute, nil, "new", false},
		"late":    {time.Minute, 0, nil, "old", true},
		"broken":  {0, 0, web.Refuse(http.StatusServiceUnavailable, "it died"), "new", false},
		"refused": {-1, 0, web.Refuse(http.StatusServiceUnavailable, "it died"), "old", false},
	} {
		synctest.Test(t, func(t *testing.T) {
			speaking := func(text string) dispatcherFunc {
				return func(ctx context.Context, req *frame.Request) (*frame.Response, error) {
					if text == "new" {
						time.Sleep(c.first)
					}
					if text == "old" || c.first >= 0 {
						_ = req.Parts([]byte(text)) // Another member of the exchange may go on after an error.
					}
					if text == "old" {
						time.Sleep(time.Minute)
						return &frame.Response{Status: http.StatusOK}, nil
					}
					time.Sleep(c.rest)
					if err := errors.Join(c.fails, ctx.Err()); err != nil {
						return nil, err
					}
					return &frame.Response{Status: http.StatusOK}, nil
				}
			}
			x := &split{}
			x.ready.Store(true)
			x.candidate.Store(&deployed{Function: &Function{}, dispatcher: speaking("new")})
			d := &deployed{Function: &Function{}, dispatcher: speaking("old"), rollout: newRollout(x)}
			d.Inference.SLO = time.Second
			var parts []string
			resp, err := d.invoke(t.Context(), &frame.Request{Header: http.Header{canaryHeader: {"always"}}, Parts: func(part []byte) error {
				parts = append(parts, string(part))
				return nil
			}})
			if fails := c.fails != nil && c.want == "new"; fails != (err != nil) || !fails && resp.Late != c.late || !slices.Equal(parts, []string{c.want}) {
				t.Errorf("%s: %+v, %v, parts %q", name, resp, err, parts)
			}
		})
	}
}

// TestCopiesTakeParts: a copy of a request for parts asks for them, too. Its answer is not compared, and is late if its
// first part is.
func TestCopiesTakeParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := &split{}
		x.ready.Store(true)
		x.proving.Store(true)
		x.mirror.Store(math.MaxUint64)
		next := &deployed{Function: &Function{}, dispatcher: dispatcherFunc(func(_ context.Context, req *frame.Request) (*frame.Response, error) {
			err := req.Parts([]byte("1"))
			time.Sleep(10 * time.Second)
			return &frame.Response{Status: http.StatusOK}, err
		})}
		next.Inference.SLO = time.Second
		x.candidate.Store(next)
		d := &deployed{Function: &Function{}, dispatcher: saying("old"), rollout: newRollout(x)}
		req := &frame.Request{Header: http.Header{}, Parts: func([]byte) error {
			t.Error("the client gets parts of a copy")
			return nil
		}}
		for range 3 { // Those that come while the copy goes on are not copied, and count for nothing.
			if _, err := d.invoke(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
		}
		time.Sleep(time.Minute)
		if got := x.next.side(); got.Answered != 1 || got.Missed != 0 || x.compared.Load() > 0 || x.copies.Load() > 0 {
			t.Errorf("%+v, %d compared, %d copies", got, x.compared.Load(), x.copies.Load())
		}
	})
}

// counting is a dispatcher that counts what is answered elsewhere.
type counting struct {
	dispatcherFunc
	elsewhere atomic.Int64
}

func (c *counting) CountElsewhere() { c.elsewhere.Add(1) }

// TestPresentKeepsItsCapacity: the present revision plans for what the candidate answers, and counts once what that fails
// to answer.
func TestPresentKeepsItsCapacity(t *testing.T) {
	failing := dispatcherFunc(func(context.Context, *frame.Request) (*frame.Response, error) {
		return nil, web.Refuse(http.StatusServiceUnavailable, "it is late")
	})
	for name, c := range map[string]struct {
		side string
		next dispatcherFunc
		want int64
	}{"the candidate": {"always", saying("new"), 1}, "its failure": {"always", failing, 0}, "the present": {"never", saying("new"), 0}} {
		x, present := &split{}, &counting{dispatcherFunc: saying("old")}
		x.ready.Store(true)
		x.candidate.Store(&deployed{Function: &Function{}, dispatcher: c.next})
		d := &deployed{Function: &Function{}, dispatcher: present, rollout: newRollout(x)}
		if _, err := d.invoke(t.Context(), &frame.Request{Header: http.Header{canaryHeader: {c.side}}}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if n := present.elsewhere.Load(); n != c.want {
			t.Errorf("%s: %d requests are counted as answered elsewhere, want %d", name, n, c.want)
		}
	}
}

// TestCandidatesAreNotCalled: only their functions are.
func TestCandidatesAreNotCalled(t *testing.T) {
	r := newSides(t, saying("new"))
	r.begin(t)
	for _, target := range []string{"/function/f--next", "/function/f--next.openfaas-fn/v2"} {
		if got := r.do("POST", target, "x"); got.Code != http.StatusNotFound || !strings.Contains(got.Body.String(), canaryHeader) {
			t.Errorf("%s: %d %s", target, got.Code, got.Body)
		}
	}
	if got := r.do("GET", "/v1/models", ""); !strings.Contains(got.Body.String(), `"f"`) || strings.Contains(got.Body.String(), "f--next") {
		t.Errorf("%d %s", got.Code, got.Body)
	}
	if got := r.do("GET", "/v1/models/f--next", ""); got.Code != http.StatusNotFound {
		t.Errorf("%d %s", got.Code, got.Body)
	}
}

// TestIfMatchKeepsAnotherCandidate: who has seen only the present revision does not replace a candidate.
func TestIfMatchKeepsAnotherCandidate(t *testing.T) {
	r := newSides(t, saying("new"))
	x := r.begin(t)
	deploy := func(image string) int {
		return r.do("POST", "/system/functions", deploymentOf(image, "com.openfaas.infer.canary", "50"), "If-Match", `"1"`).Code
	}
	if code := deploy("other"); code != http.StatusPreconditionFailed {
		t.Error(code)
	}
	if code := deploy("new"); code != http.StatusAccepted { // The same.
		t.Error(code)
	}
	if r.rollouts.ofFunction("f.openfaas-fn") != x {
		t.Error("the candidate was replaced")
	}
}

// TestRefusedDeploymentEndsNoDownload: what was accepted goes on when a later deployment is refused.
func TestRefusedDeploymentEndsNoDownload(t *testing.T) {
	r, g := fetchingRig(t, 0)
	r.deploy(t, fromURI)
	r.controller.refused = map[string]error{"bad": &annotation.Error{Key: "image", Value: "bad", Why: "it has no model"}}
	if got := r.do("POST", "/system/functions", deployment(nil), "If-Match", `"7"`); got.Code != http.StatusPreconditionFailed {
		t.Errorf("%d %s", got.Code, got.Body)
	}
	bad := deployment(func(d *types.FunctionDeployment) { d.Image = "bad" })
	if got := r.do("POST", "/system/functions", bad); got.Code != http.StatusBadRequest {
		t.Errorf("%d %s", got.Code, got.Body)
	}
	if all, _ := g.Kept(); len(all) != 1 || !r.shows("being downloaded")() {
		t.Fatal("the accepted deployment is gone")
	}
	g.gate <- nil
	eventually(t, "deployed", func() bool { return r.do("POST", "/function/mnist", "x").Code == 200 })
	eventually(t, "dropped", func() bool { all, _ := g.Kept(); return len(all) == 0 })
}

// TestOvertakenDownloadIsNotKept: neither a file nor a placeholder stays of a deployment whose place another has taken.
func TestOvertakenDownloadIsNotKept(t *testing.T) {
	r, g := fetchingRig(t, 0)
	var d types.FunctionDeployment
	d.Service, d.Namespace = "mnist", DefaultNamespace
	w := &waitingDeployment{done: make(chan struct{}), cancel: func() {}, err: errors.New("canceled")}
	close(w.done)
	c := change{address: address{"mnist", DefaultNamespace}, deployment: d}
	c.announce(r.Server, w)
	if err := c.keep(r.Server, w); web.StatusOf(err) != http.StatusConflict || len(g.kept) > 0 || r.names() > 0 {
		t.Error(err, g.kept, r.names())
	}
	r.fetching.replace(c.address.full(), w)
	c.announce(r.Server, w)
	r.fetching.replace(c.address.full(), nil)
	if err := c.finish(t.Context(), r.Server, w); web.StatusOf(err) != http.StatusConflict || r.names() > 0 {
		t.Error(err, r.names())
	}
}

// newRollout is the pointer of a function whose requests x splits.
func newRollout(x *split) *atomic.Pointer[split] {
	p := new(atomic.Pointer[split])
	p.Store(x)
	return p
}
