package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/dispatch"
	"github.com/faas-infer/faas-infer/provider/web"
)

func TestRequestsGoToTheOwner(t *testing.T) {
	where, all := several(t, 3)
	owner := where.owner(all)
	for _, o := range all {
		got, err := o.ask(t.Context(), 30*time.Second)
		if err != nil {
			t.Fatalf("at %s: %v", o.own.id, err)
		}
		if want := owner.own.id + ": PUT /a b?q=1 header body"; got.Status != 201 || string(got.Body) != want || got.Header.Get("X-By") != owner.own.id {
			t.Errorf("at %s: %d %v %q, want 201 and %q", o.own.id, got.Status, got.Header, got.Body, want)
		}
		if got.Revision != 7 {
			t.Errorf("at %s the answer has the revision %d, want 7: the cache of answers looks at it", o.own.id, got.Revision)
		}
		if p := time.Duration(owner.own.patience.Load()); p != 30*time.Second {
			t.Errorf("at %s the owner was told of a patience of %v, want 30 s", o.own.id, p)
		}
	}
	if n := owner.own.requests.Load(); n != 3 {
		t.Errorf("the owner has had %d requests, want 3", n)
	}
}

func TestALargeBodyIsHandedOn(t *testing.T) {
	where, all := several(t, 2)
	owner := where.owner(all)
	other := all[0]
	if other == owner {
		other = all[1]
	}
	body := strings.Repeat("x", 3<<20)
	got, err := other.shared.Invoke(t.Context(), &frame.Request{Method: "POST", Path: "/", Header: http.Header{}, Body: []byte(body)})
	if err != nil || !strings.HasSuffix(string(got.Body), body) {
		t.Fatalf("%v, %d bytes", err, len(got.Body))
	}
}

func TestTheNextOneDispatchesWhereTheOwnerIsGone(t *testing.T) {
	where, all := several(t, 3)
	ranking := Rank(name, where.members())
	by := func(id string) *one {
		for _, o := range all {
			if o.own.id == id {
				return o
			}
		}
		return nil
	}
	by(ranking[0].ID).server.Close()
	for _, o := range []*one{by(ranking[1].ID), by(ranking[2].ID)} {
		for range 3 {
			got, err := o.ask(t.Context(), 0)
			if err != nil || got.Header.Get("X-By") != ranking[1].ID {
				t.Fatalf("with the owner gone, at %s: %v, %v; want the answer of %s", o.own.id, got, err, ranking[1].ID)
			}
		}
	}
	// It comes back at another address.
	where.set(ranking[1], ranking[2])
	if got, err := by(ranking[2].ID).ask(t.Context(), 0); err != nil || got.Header.Get("X-By") != ranking[1].ID {
		t.Errorf("once it is no member: %v, %v", got, err)
	}
}

func TestWhatAClosingReplicaRefusesTheNextOneTakes(t *testing.T) {
	for why, prepare := range map[string]func(*one){
		"closing":           func(o *one) { o.own.fails = dispatch.ErrClosed },
		"not deployed yet":  func(o *one) { o.Unshare(name) },
		"other credentials": func(o *one) { o.strange.Store(true) },
	} {
		t.Run(why, func(t *testing.T) {
			where, all := several(t, 2)
			owner := where.owner(all)
			other := all[0]
			if other == owner {
				other = all[1]
			}
			prepare(owner)
			got, err := other.ask(t.Context(), 0)
			if err != nil || got.Header.Get("X-By") != other.own.id {
				t.Errorf("%v, %v; want the answer of %s itself", got, err, other.own.id)
			}
		})
	}
}

func TestErrorsOfTheOwner(t *testing.T) {
	where, all := several(t, 2)
	owner := where.owner(all)
	other := all[0]
	if other == owner {
		other = all[1]
	}
	owner.own.fails = dispatch.ErrQueueFull
	_, err := other.ask(t.Context(), 0)
	var again web.Retryable
	if !errors.As(err, &again) || again.HTTPStatus() != 429 || again.RetryAfter() != time.Second || err.Error() != dispatch.ErrQueueFull.Error() {
		t.Errorf("%v, want what the owner says, with its status and when to try again", err)
	}
	if n := other.own.requests.Load(); n != 0 {
		t.Errorf("what the owner refused was dispatched %d times elsewhere", n)
	}
	owner.own.fails = errors.New("oh")
	var known web.HTTPError
	if _, err := other.ask(t.Context(), 0); !errors.As(err, &known) || known.HTTPStatus() != 500 {
		t.Errorf("%v, want status 500", err)
	}
}

// If the owner dies with a request, the next replica executes it. If that dies, too, the
// request is given up.
func TestTheOwnerDiesWithARequest(t *testing.T) {
	where, all := several(t, 3)
	var ranked []*one
	for _, m := range Rank(name, where.members()) {
		ranked = append(ranked, all[slices.IndexFunc(all, func(o *one) bool { return o.own.id == m.ID })])
	}
	asker := ranked[2]
	ranked[0].own.hold = make(chan struct{})
	begin := func() chan error {
		failed := make(chan error, 1)
		was := ranked[0].own.requests.Load()
		go func() {
			got, err := asker.ask(context.Background(), 0)
			if err == nil {
				err = errors.New("answered by " + got.Header.Get("X-By"))
			}
			failed <- err
		}()
		until(t, "the request is there", func() bool { return ranked[0].own.requests.Load() == was+1 })
		return failed
	}
	failed := begin()
	ranked[0].server.CloseClientConnections()
	if err := <-failed; err.Error() != "answered by "+ranked[1].own.id {
		t.Errorf("%v, want the answer of %s, which is next", err, ranked[1].own.id)
	}
	// Further requests do not wait for the dead replica.
	if got, err := asker.ask(t.Context(), 0); err != nil || got.Header.Get("X-By") != ranked[1].own.id {
		t.Errorf("the next request: %v, %v; want the answer of %s", got, err, ranked[1].own.id)
	}

	asker.peers.mu.Lock()
	clear(asker.peers.all)
	asker.peers.mu.Unlock()
	ranked[1].own.hold = make(chan struct{})
	failed = begin()
	was := ranked[1].own.requests.Load()
	ranked[0].server.CloseClientConnections()
	until(t, "the next one has it", func() bool { return ranked[1].own.requests.Load() == was+1 })
	ranked[1].server.CloseClientConnections()
	var known web.HTTPError
	if err := <-failed; !errors.As(err, &known) || known.HTTPStatus() != 502 || asker.own.requests.Load() != 0 {
		t.Errorf("%v, and %d requests here; want status 502 after two that died", err, asker.own.requests.Load())
	}
}

// If an owner takes too long, the request is not sent to another replica: the owner may
// still execute it.
func TestAnOwnerThatHangsKeepsItsRequest(t *testing.T) {
	where, all := several(t, 2)
	owner := where.owner(all)
	other := all[0]
	if other == owner {
		other = all[1]
	}
	owner.own.hold = make(chan struct{})
	other.options.ColdWait = time.Second
	other.shared = other.Share(function(), other.own).(provider.PatientDispatcher)
	_, err := other.ask(t.Context(), 0)
	if !errors.Is(err, errNoAnswer) || other.own.requests.Load() != 0 {
		t.Errorf("%v, and %d requests elsewhere; want that it has not answered", err, other.own.requests.Load())
	}
}

func TestAClientThatLeavesLeavesTheOwner(t *testing.T) {
	where, all := several(t, 2)
	owner := where.owner(all)
	other := all[0]
	if other == owner {
		other = all[1]
	}
	owner.own.hold = make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() {
		_, err := other.ask(ctx, 0)
		failed <- err
	}()
	until(t, "the request is there", func() bool { return owner.own.requests.Load() == 1 })
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want that the client has left", err)
	}
	if other.isDown(Member{ID: owner.own.id}) {
		t.Error("the owner counts as gone because a client has left")
	}
}

func TestForwardersAreNotShared(t *testing.T) {
	_, all := several(t, 1)
	d := forwarder{all[0].own}
	if got := all[0].Share(function(), d); got != provider.Dispatcher(d) {
		t.Errorf("an ordinary function's forwarder became %T", got)
	}
}

type forwarder struct{ *answering }

func (forwarder) Forward(http.ResponseWriter, *http.Request, string, time.Duration, func(int64) error) int {
	return 200
}

// With hedge off, a request whose owner dies while it executes runs nowhere else.
func TestOnceRunsAtOneReplica(t *testing.T) {
	where, all := several(t, 2)
	f := function()
	f.Inference.Once = true
	for _, o := range all {
		o.shared = o.Share(f, o.own).(provider.PatientDispatcher)
	}
	owner, other := where.owner(all), all[0]
	if other == owner {
		other = all[1]
	}
	owner.own.hold = make(chan struct{})
	failed := make(chan error, 1)
	go func() {
		_, err := other.ask(context.Background(), 0)
		failed <- err
	}()
	until(t, "the owner executes it", func() bool { return owner.own.requests.Load() == 1 })
	owner.server.CloseClientConnections()
	if err := <-failed; !errors.Is(err, errDied) || other.own.requests.Load() != 0 {
		t.Errorf("%v; the other replica executed it %d times", err, other.own.requests.Load())
	}
}

// A replica whose process is stopped takes connections and answers nothing. A request that it has is
// served elsewhere as soon as that is known; those that come then do not wait for it, until it answers.
func TestStoppedOwnerKeepsNobodyWaiting(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	where, own := &place{}, &answering{id: "me"}
	g := New(Options{Membership: seat{where, "me"}, ColdWait: time.Hour, Logger: zerolog.Nop()})
	defer g.client.CloseIdleConnections()
	stopped := Member{ID: "stopped", URL: "http://" + l.Addr().String()}
	members := []Member{{ID: "me", URL: "http://127.0.0.1:1"}, stopped}
	n := 0
	for Rank(fmt.Sprintf("f%d", n), members)[0].ID != "stopped" {
		n++
	}
	where.set(members...)
	f := function()
	f.Name = fmt.Sprintf("f%d", n)
	d := g.Share(f, own).(provider.PatientDispatcher)
	for i := range 3 { // The limit of each is an hour.
		if _, err := d.InvokePatiently(t.Context(), post("x"), 0); err != nil || own.requests.Load() != int64(i+1) {
			t.Errorf("request %d: %v, %d served here", i, err, own.requests.Load())
		}
	}
	if !g.isDown(stopped) {
		t.Error("it still gets requests")
	}
	go http.Serve(l, http.NotFoundHandler()) // It goes on.
	defer l.Close()
	until(t, "it gets requests again", func() bool { return !g.isDown(stopped) })
}

func post(body string) *frame.Request {
	return &frame.Request{Method: "POST", Path: "/", Header: http.Header{}, Body: []byte(body)}
}
