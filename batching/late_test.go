package batching

import (
	"testing"
	"time"
)

// textFleet is a policy with one instance that takes textTime for texts, and plans with those of so many tokens.
func textFleet(slo time.Duration, planned float64) *Shared {
	p := NewShared(Options{SLO: slo})
	in := members("", 1, 16, 0, 1)[0]
	in.ID = "a"
	for b := range in.Exec {
		in.Exec[b] = textTime(b+1, planned)
	}
	in.Sizes, in.Longest = textSizes(planned), 3*512
	p.Up(epoch, in)
	return p
}

// sent adds a text of so many tokens, and reports whether it is executed at once.
func sent(p *Shared, id RequestID, at, left time.Duration, tokens int64) (runs bool) {
	p.Add(epoch.Add(at), Request{ID: id, Deadline: epoch.Add(at + left), Elements: 3 * tokens})
	return len(p.Actions(epoch.Add(at))) == 1 && p.Waiting() == 0 && p.fleet.free == 0
}

// A text that takes longer than the objective and may wait for longer runs at once on an idle instance, however many
// others may have come.
func TestLongTextsThatMayWaitRun(t *testing.T) {
	const slo = 100 * time.Millisecond
	p := textFleet(slo, 32)
	at := time.Duration(0)
	for i := range 100 {
		at += 20 * time.Millisecond
		sent(p, RequestID(i), at, slo-Travel(slo), 16)
		p.Done(epoch.Add(at+textTime(1, 16)), "a")
	}
	p.spare.left = spoiled
	if at += 20 * time.Millisecond; !sent(p, 1000, at, 30*time.Second, 512) {
		t.Error("it waits beside an idle instance")
	}
	if p.spare.left < spoiled {
		t.Errorf("%v are left to be late", p.spare.left)
	}
}

// A text that is late in any case waits while others come. It runs once these have stopped, and a timer says when.
func TestLongTextsRunWhenOthersHaveStopped(t *testing.T) {
	const slo = 100 * time.Millisecond
	p := textFleet(slo, 32)
	at := time.Duration(0)
	for i := range 2000 {
		at += 5 * time.Millisecond
		sent(p, RequestID(i), at, slo-Travel(slo), 8)
		p.Done(epoch.Add(at+textTime(1, 8)), "a")
	}
	p.spare.left = spoiled
	if at += 5 * time.Millisecond; sent(p, 5000, at, slo-Travel(slo), 512) {
		t.Fatal("it runs although 200 others come each second")
	}
	next, ok := p.Next()
	if wait := next.Sub(epoch.Add(at)); !ok || wait <= 0 || wait > slo {
		t.Fatalf("the next look is in %v", wait)
	}
	if a := p.Actions(next); len(a) != 1 || a[0].Dispatch == nil {
		t.Errorf("at that time: %+v", a)
	}
}
