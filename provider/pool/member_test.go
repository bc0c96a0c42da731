package pool

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/dispatch"
	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/provider/web"
)

// lastRequest is a dispatcher that answers every request, or fails it, and remembers the last one.
type lastRequest struct {
	got       *frame.Request
	err       error
	elsewhere int
}

func (d *lastRequest) CountElsewhere() { d.elsewhere++ }

func (d *lastRequest) Invoke(ctx context.Context, req *frame.Request) (*frame.Response, error) {
	return d.InvokePatiently(ctx, req, 0)
}

func (d *lastRequest) InvokePatiently(_ context.Context, req *frame.Request, _ time.Duration) (*frame.Response, error) {
	if d.got = req; d.err != nil {
		return nil, d.err
	}
	return &frame.Response{Status: http.StatusOK, Header: http.Header{web.RevisionHeader: {"1"}}, Revision: onlyRevision, Used: time.Second}, nil
}

// A member's request has the member's objective, unless it states its own; its answer has the member's revision.
func TestAMembersRequests(t *testing.T) {
	f := deployed(t, "a", "n", map[string]string{annotation.SLOLatency: "2s"})
	f.Revision = 7
	to := &lastRequest{}
	m := &member{metrics: metrics.New(prometheus.NewRegistry()).Function(f.Name), to: to, all: &use{}}
	m.function.Store(f)
	resp, err := m.Invoke(t.Context(), &frame.Request{})
	if err != nil || resp.Revision != 7 || resp.Header.Get(web.RevisionHeader) != "7" {
		t.Errorf("answered %+v, %v", resp, err)
	}
	if to.got.Objective != 2*time.Second || to.got.Owner != &m.owner {
		t.Errorf("the dispatcher got %+v", to.got)
	}
	if _, err := m.Invoke(t.Context(), &frame.Request{Objective: time.Second}); err != nil || to.got.Objective != time.Second {
		t.Errorf("a request of its own objective has %v, %v", to.got.Objective, err)
	}
	if used := m.use.lately(time.Now()); used < 1.9 || used > 2 {
		t.Errorf("two requests used %v s", used)
	}
	m.gone.Store(true)
	to.got = nil
	if _, err := m.Invoke(t.Context(), &frame.Request{}); !errors.Is(err, dispatch.ErrClosed) || to.got != nil {
		t.Errorf("a removed member answers %v", err)
	}
}

// A member that the model is too slow for refuses its own requests with the reason, and a refusal names the member.
func TestRefusalsNameTheMember(t *testing.T) {
	f := deployed(t, "a", "n", nil)
	to := &lastRequest{err: web.Refuse(http.StatusServiceUnavailable, "no variant of shared-k answers; see shared-k.pool.n")}
	m := &member{metrics: metrics.New(prometheus.NewRegistry()).Function(f.Name), pool: "shared-k.pool.n", to: to, all: &use{}}
	m.function.Store(f)
	_, err := m.Invoke(t.Context(), &frame.Request{})
	if want := "no variant of a answers; see a.n"; err == nil || err.Error() != want || web.StatusOf(err) != http.StatusServiceUnavailable {
		t.Errorf("the refusal is %v, want %s", err, want)
	}
	why := "too slow"
	m.hopeless.Store(&why)
	to.got = nil
	if _, err := m.Invoke(t.Context(), &frame.Request{}); err == nil || !strings.Contains(err.Error(), why) || to.got != nil {
		t.Errorf("the request of a hopeless member is answered with %v", err)
	}
}

// A request of a member that its candidate answers counts as load of the pool.
func TestAMembersLoadElsewhere(t *testing.T) {
	to := &lastRequest{}
	m := &member{to: to}
	m.CountElsewhere()
	m.gone.Store(true)
	m.CountElsewhere()
	if to.elsewhere != 1 {
		t.Errorf("%d requests count, want that before its removal", to.elsewhere)
	}
}

// A member that was scaled to zero is so until its next request.
func TestAMemberScaledToZero(t *testing.T) {
	f := deployed(t, "a", "n", nil)
	m := &member{metrics: metrics.New(prometheus.NewRegistry()).Function(f.Name), to: &lastRequest{}, all: &use{}}
	m.function.Store(f)
	m.zero.Store(true)
	if _, err := m.Invoke(t.Context(), &frame.Request{}); err != nil || m.zero.Load() {
		t.Errorf("after a request it is still scaled to zero: %v", err)
	}
}
