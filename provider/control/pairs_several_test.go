package control

import (
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/papers/asyfunc/shadow"
	"github.com/faas-infer/faas-infer/scaling"
)

// pairOf is what a replica knows of the function's body and its shadow.
func (r *rig) pairOf() (body *instance, shadows int) {
	fn := r.functions[full("f")]
	for _, in := range fn.Sorted() {
		body = in
	}
	return body, len(fn.shadows.Instances)
}

// A replica that follows knows how bodies execute with their shadows, and tells and asks them nothing. When it
// leads, it takes the pairs over: it tells the body what it knows already, and counts only what comes then.
func TestAnotherReplicaTakesPairsOver(t *testing.T) {
	shadows := map[bool]*fakeShadows{true: {}, false: {}}
	first := true
	together(t, func(o *Options) { o.Shadows, first = shadows[first].on, false }, func(leader, follower *replica) {
		leads, follows := shadows[true], shadows[false]
		leads.counted.Rows, follows.counted.Rows = 7, 7
		for _, r := range []*replica{leader, follower} {
			r.locked(func() { r.engine = &helper{Scaler: r.engine} })
		}
		both(leader, follower, "f", "model", withShadows, stays)
		leader.answered("f", "model")
		leader.until("told", func() bool { return strings.Contains(leads.last(), " f-") })
		follower.until("known", func() (known bool) {
			follower.locked(func() {
				body, n := follower.pairOf()
				known = n == 1 && body.helped != nil
			})
			return known
		})
		time.Sleep(5 * time.Second)
		if told := follows.last(); told != "" {
			t.Errorf("the replica that follows told a body %q", told)
		}
		var given cluster.InstanceID
		follower.locked(func() {
			body, _ := follower.pairOf()
			given = body.ID
		})
		asked := leader.backend.asked()
		leader.leads.Store(false)
		follower.leads.Store(true)
		follower.until("told again", func() bool { return follows.last() == leads.last() })
		time.Sleep(5 * time.Second)
		follower.answered("f", "model")
		if n := leader.backend.asked(); n != asked || !strings.HasPrefix(follows.last(), string(given)) {
			t.Errorf("%d instances were started instead of %d, and the body was told %q", n, asked, follows.last())
		}
		follower.locked(func() {
			if body, _ := follower.pairOf(); body.tookOver || body.counted.Rows != 7 {
				t.Errorf("it has counted %v rows, and has not asked: %v", body.counted.Rows, body.tookOver)
			}
		})
	})
}

// A shadow that is given to another body is so where other replicas and the next provider find it.
func TestPairsAreRecorded(t *testing.T) {
	shadows := &fakeShadows{}
	tryWith(t, func(o *Options) { o.Shadows = shadows.on }, func(r *rig) {
		body, s := r.helped(shadows, "model", stays)
		r.mu.Lock()
		r.driver.Pair(scaling.Pair{Function: full("f"), ID: s.ID, Body: "other"})
		r.driver.Pair(scaling.Pair{Function: full("f"), ID: body.ID, Body: "other"})
		r.mu.Unlock()
		r.until("recorded", func() bool {
			shadows.mu.Lock()
			defer shadows.mu.Unlock()
			return len(shadows.recorded) > 0
		})
		if got := strings.Join(shadows.recorded, ", "); got != string(s.ID)+" to other" {
			t.Errorf("recorded %s", got)
		}
	})
}

// The reason of another replica why a model cannot be divided may have passed. A replica that follows shows it,
// and looks itself once it leads.
func TestReasonsOfAnotherReplica(t *testing.T) {
	shadows := map[bool]*fakeShadows{true: {fails: 100, why: &shadow.UndividedError{Why: "its weights are packed"}}, false: {}}
	first := true
	together(t, func(o *Options) { o.Shadows, first = shadows[first].on, false }, func(leader, follower *replica) {
		both(leader, follower, "f", "model", withShadows, stays)
		plan := func(r *replica) string {
			s, _ := r.Status(full("f"))
			return s.Plan
		}
		leader.until("found", func() bool {
			return strings.Contains(plan(leader), "no shadows: the model cannot be divided: its weights are packed")
		})
		follower.until("shown", func() bool {
			return strings.Contains(plan(follower), "no shadows yet, it is tried again: the leader found: the model cannot be divided: its weights are packed")
		})
		if shadows[false].blocks != 0 {
			t.Error("the replica that follows looked itself")
		}
		leader.leads.Store(false)
		follower.leads.Store(true)
		follower.until("divided", func() bool { return strings.Contains(plan(follower), "one holds the blocks 0:1") })
	})
}
