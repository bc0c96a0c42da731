package health

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

var epoch = time.Unix(1_000_000, 0)

// bench is a group of targets that answer one request after another, every step.
type bench struct {
	Group
	now     time.Time
	targets []*Target
}

func newBench(n int) *bench {
	b := &bench{now: epoch}
	for range n {
		b.targets = append(b.targets, &Target{})
	}
	return b
}

// spare reports whether another target than t serves.
func (b *bench) spare(t *Target) bool {
	return slices.ContainsFunc(b.targets, func(o *Target) bool { return o != t && o.State() == Healthy })
}

// request sends a request to the first target that serves, as one that answers at once attracts
// all. failing says which targets fail.
func (b *bench) request(failing ...int) (failed bool) {
	b.now = b.now.Add(20 * time.Millisecond)
	for _, t := range b.targets {
		t.Probe(b.now)
	}
	for i, t := range b.targets {
		if !t.Serves() {
			continue
		}
		for _, f := range failing {
			failed = failed || f == i
		}
		b.Answered(b.now, t, failed, b.spare(t))
		return failed
	}
	panic("no target serves")
}

func (b *bench) states() (out []State) {
	for _, t := range b.targets {
		out = append(out, t.State())
	}
	return out
}

// One of two fails at once: five requests find that out, one probes after 1, 2 and 4 s each, and
// then it is given up.
func TestFailingTargetIsEjectedAndGivenUp(t *testing.T) {
	b := newBench(2)
	failed := 0
	for b.now.Sub(epoch) < 20*time.Second {
		if b.request(0) {
			failed++
		}
	}
	if s := b.states(); s[0] != Gone || s[1] != Healthy || failed != fewest+3 {
		t.Errorf("states %v after %d failures, want gone and healthy after %d", s, failed, fewest+3)
	}
}

// One that is well again serves again.
func TestHealedTargetServes(t *testing.T) {
	b := newBench(2)
	for range 2 * fewest {
		b.request(0)
	}
	if s := b.states(); s[0] != Ejected {
		t.Fatalf("states %v", s)
	}
	for b.now.Sub(epoch) < 3*time.Second {
		b.request()
	}
	if s := b.states(); s[0] != Healthy || s[1] != Healthy {
		t.Errorf("states %v", s)
	}
}

// If all fail alike, no target is given up, and all serve most of the time: the model or its clients
// are the cause.
func TestAllFailAlike(t *testing.T) {
	b := newBench(3)
	for b.now.Sub(epoch) < time.Minute {
		b.request(0, 1, 2)
		serving := 0
		for _, o := range b.targets {
			if o.Serves() {
				serving++
			}
		}
		if serving == 0 {
			t.Fatalf("after %v none serves: %v", b.now.Sub(epoch), b.states())
		}
	}
	for i, s := range b.states() {
		if s == Gone {
			t.Errorf("target %d is given up", i)
		}
	}
}

// Several of them fail at once, and one that is well is slower: it has all the traffic in the end.
func TestSeveralFail(t *testing.T) {
	for _, n := range []int{3, 6, 20} {
		b := newBench(n)
		failing := make([]int, n-1)
		for i := range failing {
			failing[i] = i
		}
		failed := 0
		for i := range 50 * 60 { // A minute.
			if i%10 == 9 { // The slow one takes a tenth of the requests in any case.
				b.now = b.now.Add(20 * time.Millisecond)
				b.Answered(b.now, b.targets[n-1], false, b.spare(b.targets[n-1]))
				continue
			}
			if b.request(failing...) {
				failed++
			}
		}
		if failed > 12*n || b.targets[n-1].State() != Healthy {
			t.Errorf("of %d all but one fail: %d failures; states %v", n, failed, b.states())
		}
	}
}

// A share of failures that all have leaves all in service; one that has more goes.
func TestShareOfFailures(t *testing.T) {
	for _, c := range []struct {
		share  [3]float64
		wanted bool
	}{{[3]float64{0.1, 0.1, 0.1}, false}, {[3]float64{0.3, 0.3, 0.3}, false}, {[3]float64{0.6, 0.05, 0.05}, true}} {
		ejections, random := 0, rand.New(rand.NewPCG(1, 2))
		b := newBench(3)
		for i := range 6000 {
			b.now = b.now.Add(10 * time.Millisecond)
			at := b.targets[i%3]
			at.Probe(b.now)
			if !at.Serves() {
				continue
			}
			for _, o := range b.Answered(b.now, at, random.Float64() < c.share[i%3], b.spare(at)) {
				if o.State() == Ejected || o.State() == Gone {
					if ejections++; o != b.targets[0] {
						t.Errorf("shares %v: target %v goes", c.share, o)
					}
				}
			}
		}
		if (ejections > 0) != c.wanted {
			t.Errorf("shares %v: %d ejections", c.share, ejections)
		}
	}
}

// The only one is replaced once it has failed for long. If the next one does the same, it stays, and the
// function is said to be the cause.
func TestOnlyTargetIsReplacedOnce(t *testing.T) {
	b := newBench(1)
	b.request()
	for b.now.Sub(epoch) < aloneFor {
		if b.request(0); b.states()[0] != Healthy {
			t.Fatalf("it goes after %v", b.now.Sub(epoch))
		}
	}
	b.request(0)
	b.request(0)
	if s := b.states(); s[0] != Gone || b.targets[0].Why() != ErrAlone || b.Problem(b.now) != "" {
		t.Fatalf("states %v, %v, %q", s, b.targets[0].Why(), b.Problem(b.now))
	}
	b.Answered(b.now, b.targets[0], false, false) // It is drained.
	b.targets[0] = &Target{}
	for end := b.now.Add(3 * longestRest); b.now.Before(end); b.now = b.now.Add(time.Second) {
		b.request(0)
	}
	if s := b.states(); s[0] != Healthy || !strings.Contains(b.Problem(b.now), "function itself is the cause") {
		t.Errorf("of the second one: %v, %q", s, b.Problem(b.now))
	}
	b.Forget(b.targets[0])
	if b.Problem(b.now) != "" {
		t.Errorf("with no target: %q", b.Problem(b.now))
	}
	b.targets[0] = &Target{} // As after another deployment.
	for range 10 * aloneFor / time.Second {
		if b.now = b.now.Add(time.Second); b.states()[0] == Healthy {
			b.request(0)
		}
	}
	if s := b.states(); s[0] != Gone {
		t.Errorf("of the next one: %v", s)
	}
}

// One that answers well at first and then fails, again and again, is replaced ever more seldom.
func TestReplacementsOfTheOnlyTargetRest(t *testing.T) {
	b := newBench(1)
	const day = 24 * time.Hour
	replaced, latest := 0, epoch
	for b.request(); b.now.Sub(epoch) < day; b.now = b.now.Add(time.Second) {
		if b.request(0); b.states()[0] == Gone {
			if rest := b.now.Sub(latest); replaced > 0 && rest < firstRest {
				t.Errorf("replaced again after %v", rest)
			}
			replaced, latest, b.targets[0] = replaced+1, b.now, &Target{}
			b.request()
		}
	}
	if least := int(day / longestRest); replaced < least-1 || replaced > least+8 {
		t.Errorf("replaced %d times in a day", replaced)
	}
}

// A few failures, or some among good answers, leave the only one in service.
func TestOnlyTargetStays(t *testing.T) {
	for name, fails := range map[string]func(i int) bool{
		"few":     func(i int) bool { return i%600 == 0 },
		"most":    func(i int) bool { return i%50 > 0 },
		"briefly": func(i int) bool { return i%500 > 100 },
	} {
		b := newBench(1)
		for i := range 5000 {
			var failing []int
			if fails(i) {
				failing = []int{0}
			}
			if b.request(failing...); b.states()[0] != Healthy || b.Problem(b.now) != "" {
				t.Fatalf("%s: %v after %v, %q", name, b.states(), b.now.Sub(epoch), b.Problem(b.now))
			}
		}
	}
}

// Silence goes from suspicion to loss, and an answer ends it at any time.
func TestSilence(t *testing.T) {
	rules := Rules{Eject: time.Second, Lose: 10 * time.Second}
	for _, c := range []struct {
		spare, busy bool
		silence     time.Duration
		silent      State
		heard       State
	}{
		{false, false, 0, Suspect, Healthy},
		{true, false, 0, Aside, Healthy},
		{true, true, 0, Aside, Finishing},
		{false, true, 0, Suspect, Healthy},
		{false, false, time.Second, Silent, Healthy},
		{true, true, 2 * time.Second, Silent, Finishing},
		{false, false, 10 * time.Second, Gone, Gone},
	} {
		var target Target
		if !target.Doubt(c.spare) || target.Doubt(c.spare) {
			t.Errorf("%+v: it is not asked once", c)
		}
		target.Unheard(c.silence, rules)
		if target.State() != c.silent {
			t.Errorf("%+v: %v after the silence", c, target.State())
		}
		if target.Heard(epoch, c.busy); target.State() != c.heard {
			t.Errorf("%+v: %v after an answer", c, target.State())
		}
		if target.Finished(); c.heard == Finishing && target.State() != Healthy {
			t.Errorf("%+v: %v in the end", c, target.State())
		}
	}
}

// An ejected target that is silent too is ejected again once it answers.
func TestEjectedAndSilent(t *testing.T) {
	b := newBench(2)
	for range fewest {
		b.request(0)
	}
	at := b.targets[0]
	at.Doubt(true)
	at.Unheard(time.Second, Rules{Eject: time.Second})
	if at.Heard(b.now, true); at.State() != Ejected {
		t.Errorf("it is %v", at.State())
	}
	at.Doubt(true)
	if at.Heard(b.now.Add(time.Minute), false); at.State() != Probing {
		t.Errorf("it is %v after its pause", at.State())
	}
}
