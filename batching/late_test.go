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

// estimated adds a text that seems to have so many tokens, and reports whether it is executed at once.
func estimated(p *Shared, id RequestID, at, left time.Duration, tokens int64) (runs bool) {
	p.Add(epoch.Add(at), Request{ID: id, Deadline: epoch.Add(at + left), Elements: 3 * tokens})
	return len(p.Actions(epoch.Add(at))) == 1 && p.Waiting() == 0 && p.fleet.free == 0
}

// One of 128 tokens takes 33 ms, and is in time. Tokens are estimated, so it may seem to have up to 180, which take 47 ms.
func TestTextsThatSeemTooLongAreTried(t *testing.T) {
	const slo, gap = 50 * time.Millisecond, 333 * time.Millisecond
	for _, planned := range []float64{32, 128, 256} {
		p, at := textFleet(slo, planned), time.Duration(0)
		for i := range 200 {
			tokens := []int64{110, 128, 150, 165, 180}[i%5]
			if at += gap; !estimated(p, RequestID(i), at, slo-Travel(slo), tokens) {
				t.Errorf("planned for %v tokens: text %d, which seems to have %d, waits or is refused", planned, i, tokens)
			}
			p.Done(epoch.Add(at+textTime(1, 128)), "a")
		}
		if estimated(p, 1000, at+gap, 8*time.Millisecond, 128) {
			t.Error("a text runs that is late even if it is a third shorter than it seems")
		}
	}
}

// A text that takes longer than the objective and may wait for longer runs at once on an idle instance, however many
// others may have come.
func TestLongTextsThatMayWaitRun(t *testing.T) {
	const slo = 100 * time.Millisecond
	p := textFleet(slo, 32)
	at := time.Duration(0)
	for i := range 100 {
		at += 20 * time.Millisecond
		estimated(p, RequestID(i), at, slo-Travel(slo), 16)
		p.Done(epoch.Add(at+textTime(1, 16)), "a")
	}
	p.spare.left = spoiled
	if at += 20 * time.Millisecond; !estimated(p, 1000, at, 30*time.Second, 512) {
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
		estimated(p, RequestID(i), at, slo-Travel(slo), 8)
		p.Done(epoch.Add(at+textTime(1, 8)), "a")
	}
	p.spare.left = spoiled
	if at += 5 * time.Millisecond; estimated(p, 5000, at, slo-Travel(slo), 512) {
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
