package peer

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/auth"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/decisions"
	"github.com/faas-infer/faas-infer/provider/web"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// place lists the replicas of a test.
type place struct {
	mu      sync.Mutex
	all     []Member
	leaving []Member
}

func (p *place) set(members ...Member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = members
}

func (p *place) members() []Member {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all
}

// leave makes the last member a leaving replica.
func (p *place) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.all) - 1
	p.all, p.leaving = p.all[:last:last], append(slices.Clone(p.leaving), p.all[last])
}

// seat is one replica's view of it.
type seat struct {
	*place
	id string
}

func (s seat) Members() []Member { return s.members() }
func (s seat) Self() string      { return s.id }

func (s seat) Leaving() []Member {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leaving
}

// answering is a dispatcher that names its replica in each answer.
type answering struct {
	id       string
	requests atomic.Int64
	patience atomic.Int64
	// waited is what the latest request waited before.
	waited atomic.Int64
	// fails is its error. It waits for hold before it answers.
	fails error
	hold  chan struct{}
}

func (a *answering) Invoke(ctx context.Context, req *frame.Request) (*frame.Response, error) {
	return a.InvokePatiently(ctx, req, 0)
}

func (a *answering) InvokePatiently(ctx context.Context, req *frame.Request, patience time.Duration) (*frame.Response, error) {
	a.requests.Add(1)
	a.patience.Store(int64(patience))
	a.waited.Store(int64(req.Waited))
	if a.hold != nil {
		select {
		case <-a.hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if a.fails != nil {
		return nil, a.fails
	}
	body := fmt.Sprintf("%s: %s %s?%s %s %s", a.id, req.Method, req.Path, req.Query, req.Header.Get("X-Test"), req.Body)
	header := http.Header{"X-By": {a.id}, web.RevisionHeader: {"7"}} // As control's dispatcher sets it.
	return &frame.Response{Status: 201, Header: header, Revision: 7, Body: []byte(body)}, nil
}

// worker is a Local that records its calls.
type worker struct {
	mu      sync.Mutex
	load    Load
	since   []uint64
	wakes   int
	drained []cluster.InstanceID
	parked  []cluster.InstanceID
	serves  map[cluster.InstanceID]cluster.Config
	busy    bool
	hold    chan struct{}
}

func (w *worker) Load(since uint64) Load {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since = append(w.since, since)
	l := w.load
	if since < l.Next {
		l.Executed = l.Executed[since:]
	} else {
		l.Executed = nil
	}
	return l
}

func (w *worker) Wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wakes++
}

func (w *worker) Drain(ctx context.Context, id cluster.InstanceID) error {
	w.mu.Lock()
	w.drained = append(w.drained, id)
	w.mu.Unlock()
	select {
	case <-w.hold:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *worker) Park(id cluster.InstanceID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.parked = append(w.parked, id)
	return !w.busy
}

func (w *worker) Serve(id cluster.InstanceID, config cluster.Config) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.serves[id] = config
}

// locked runs f under the lock.
func (w *worker) locked(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// one is one replica of a test.
type one struct {
	*Group
	worker *worker
	server *httptest.Server
	own    *answering
	// shared is the dispatcher that its routes use.
	shared provider.PatientDispatcher
	leads  atomic.Bool
	// strange: it has other credentials.
	strange atomic.Bool
}

const name = "f.openfaas-fn"

// several makes and runs n replicas with one function. The first leads.
func several(t testing.TB, n int) (*place, []*one) {
	t.Helper()
	where, all := &place{}, []*one{}
	for i := range n {
		id := fmt.Sprintf("r%d", i)
		o := &one{own: &answering{id: id}, worker: &worker{serves: map[cluster.InstanceID]cluster.Config{}, hold: make(chan struct{})}}
		o.leads.Store(i == 0)
		o.Group = New(Options{
			Membership: seat{where, id}, Leading: o.leads.Load, Credentials: &auth.BasicAuthCredentials{User: "admin", Password: "secret"},
			Tick: 10 * time.Millisecond, ColdWait: time.Minute, Decisions: decisions.NewLog(), Logger: zerolog.Nop(),
		})
		o.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if o.strange.Load() {
				r.SetBasicAuth("admin", "other")
			}
			o.Handler().ServeHTTP(w, r)
		}))
		o.shared = o.Share(function(), o.own).(provider.PatientDispatcher)
		o.Attach(o.worker)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			o.Run(ctx)
		}()
		t.Cleanup(func() {
			cancel()
			<-done
			o.client.CloseIdleConnections()
			o.server.Close()
		})
		all = append(all, o)
		where.set(append(slices.Clone(where.members()), Member{ID: id, URL: o.server.URL})...)
	}
	return where, all
}

func function() *provider.Function {
	return &provider.Function{Name: name, Inference: annotation.Inference{IsInference: true, SLO: time.Second}}
}

func (p *place) owner(all []*one) *one {
	m := Rank(name, p.members())[0]
	return all[slices.IndexFunc(all, func(o *one) bool { return o.own.id == m.ID })]
}

func (o *one) ask(ctx context.Context, patience time.Duration) (*frame.Response, error) {
	return o.shared.InvokePatiently(ctx, &frame.Request{Method: "PUT", Path: "/a b", Query: "q=1", Header: http.Header{"X-Test": {"header"}}, Body: []byte("body")}, patience)
}

func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}
