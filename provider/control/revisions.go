package control

import (
	"context"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/provider/keeper"
	"github.com/faas-infer/faas-infer/provider/latency"
)

// revisions prepares the wanted revisions of functions, and makes them the served ones. Only it changes a
// function's wanting and served.
type revisions struct {
	mu       *sync.Mutex
	keeper   *keeper.Keeper[*instance]
	finder   *latency.Finder
	rules    *latency.Rules
	records  *latency.Records
	types    *paces
	pairs    *pairs
	trials   *trials
	arrivals *arrivals
	checks   *checks
	// bundles, improver, mapped, engine and coldWait are those of [Options].
	bundles  Bundles
	improver Improver
	mapped   func(prepared string) int64
	engine   string
	coldWait time.Duration
	// leads reports whether this replica starts and stops instances. claim takes over a function's instances.
	leads func() bool
	claim func(*function)
	wake  func()
}

// preparation is the work for one revision.
type preparation struct {
	*revisions
	revision
	fn *function
	// all has the revision's models. cutting: it may be cut over several instances, and it is
	// not known yet how.
	all     []*task
	cutting bool
	// again: it was prepared before, and variants may have been made of its models since.
	again bool
	// lesson waits for a request that teaches the sizes of the model in the file untaught, nil if they are
	// known or not needed.
	lesson   *lesson
	untaught string
}

// want begins to prepare a revision, in place of an earlier one. untaught is the file of a model whose sizes
// requests have to teach, and why says more; "" for none. The lock is held.
func (c *revisions) want(fn *function, r revision, untaught, why string) {
	if fn.wanted == nil {
		fn.unknown, fn.classing.stale = r.models, true
		fn.offer()
	} else {
		fn.abandon()
		fn.making.keep(improvement(c.improver, r.Function, r.bundle))
		// The new deployment may not have the problem of the earlier one.
		fn.failed, fn.unregistered, fn.planning = "", "", false
		fn.classing.classifier.lesson.Store(nil)
		fn.tell(time.Now())
	}
	fn.wanted, fn.bundle = r.Function, r.bundle
	p := preparation{revisions: c, fn: fn, revision: r}
	if untaught != "" {
		p.lesson, p.untaught = p.openLesson(untaught, why), untaught
	}
	p.begin()
}

// drop ends the preparation for a function that is removed. The lock is held.
func (c *revisions) drop(fn *function) {
	fn.abandon()
	fn.making.keep("")
	fn.wanted = nil
}

// begin prepares the revision in the background. The lock is held.
func (c preparation) begin() {
	ctx, abandon := context.WithCancel(c.keeper.Context())
	c.fn.abandon = abandon
	c.fn.again = func() {
		abandon()
		next, same := c, *knowing(c.finder, c.Function, c.models)
		// A new pointer: what is left of the abandoned work must not serve.
		next.Function, next.again, next.fn.wanted, next.lesson = &same, true, &same, nil
		next.begin()
	}
	c.arrivals.begin(c.fn)
	c.keeper.Begin(func() {
		defer abandon()
		c.prepare(ctx)
	})
}

// repairParts prepares the parts of a function's plans again if they are damaged, which its instances may
// have exited for. It looks after each failure. The lock is held.
func (c *revisions) repairParts(fn *function) {
	after := fn.Failures.Count
	if after == fn.partsCheckedAt {
		return
	}
	fn.partsCheckedAt = after
	for _, a := range fn.artefacts {
		if a.cut == nil || after == 0 {
			continue
		}
		f := fn.Function
		c.keeper.Begin(func() {
			if _, err := c.finder.Ready(c.keeper.Context(), f, a.file); err != nil && c.keeper.Context().Err() == nil {
				fn.log.Error().Err(err).Str("plan", a.Name).Msg("cannot prepare the parts of the model")
			}
		})
	}
}
