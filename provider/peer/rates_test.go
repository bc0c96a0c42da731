package peer

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/provider/access"
)

// Three replicas together let as many requests through as one. If the owner is gone, another counts.
func TestARateHoldsOnce(t *testing.T) {
	where, all := several(t, 3)
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	limiters := map[*one]*access.Limiter{}
	for _, o := range all {
		limiters[o] = access.NewLimiter(access.Rate{Requests: 4, Per: time.Hour})
	}
	take := func(o *one, caller string) access.Outcome {
		return NewRates(o.Group).Take(t.Context(), name, caller, func() access.Outcome { return limiters[o].Take(caller, now) })
	}
	owner := where.owner(all)
	// Before the owner knows the function, each replica counts.
	for _, o := range all {
		if got := take(o, "early"); !got.Allowed || got.Remaining != 3 {
			t.Errorf("at %s: %+v", o.own.id, got)
		}
	}
	for _, o := range all {
		NewRates(o.Group).Attach(func(function, caller string) (access.Outcome, bool) {
			return limiters[o].Take(caller, now), function == name
		})
	}
	for i := range 9 {
		for _, caller := range []string{"", "a b&c"} {
			o := all[i%3]
			got := take(o, caller)
			if got.Allowed != (i < 4) || got.Limit != 4 || got.Allowed == (got.Retry > 0) {
				t.Errorf("request %d of %q, at %s: %+v", i, caller, o.own.id, got)
			}
		}
	}
	owner.server.Close()
	for _, o := range all {
		if o != owner {
			if got := take(o, ""); !got.Allowed {
				t.Errorf("without the owner, at %s: %+v", o.own.id, got)
			}
		}
	}
}

// A stopped owner makes only the first requests wait, until it answers again. A client that leaves tells nothing about the
// owner.
func TestStoppedOwnerCountsNothing(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	where := &place{}
	g := New(Options{Membership: seat{where, "me"}, ColdWait: time.Hour, Logger: zerolog.Nop()})
	defer g.client.CloseIdleConnections()
	stopped := Member{ID: "stopped", URL: "http://" + l.Addr().String()}
	members := []Member{{ID: "me", URL: "http://127.0.0.1:1"}, stopped}
	function := ""
	for n := 0; function == "" || Rank(function, members)[0].ID != "stopped"; n++ {
		function = fmt.Sprintf("f%d", n)
	}
	where.set(members...)
	counted := 0
	take := func(ctx context.Context) {
		NewRates(g).Take(ctx, function, "", func() access.Outcome {
			counted++
			return access.Outcome{Allowed: true}
		})
	}
	left, leave := context.WithCancel(t.Context())
	leave()
	take(left)
	if g.isDown(stopped) {
		t.Error("it gets no requests because a client left")
	}
	take(t.Context())
	if !g.isDown(stopped) || counted != 2 {
		t.Errorf("it still gets requests; %d are counted here", counted)
	}
	go http.Serve(l, http.NotFoundHandler()) // It goes on.
	defer l.Close()
	until(t, "it gets requests again", func() bool { return !g.isDown(stopped) })
}
