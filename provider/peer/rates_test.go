package peer

import (
	"testing"
	"time"

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
