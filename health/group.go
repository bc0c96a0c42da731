package health

import (
	"math"
	"slices"
	"time"
)

const (
	// window is the time in which answers count together.
	window = 10 * time.Second
	// fewest is the number of failures below which a target is not ejected.
	fewest = 5
	// chance is the highest probability that so many failures in a row come by chance.
	chance = 1e-5
	// difference is how much larger a target's share of failures must be than its siblings', and
	// sigmas by how many standard errors.
	difference = 0.2
	sigmas     = 4
	// alike is the share of failures from which the others fail alike.
	alike = 0.5
	// firstPause is the first time as Ejected; it doubles with each ejection that follows while
	// siblings answer well. After more than maxEjections of these a target is given up.
	firstPause   = time.Second
	maxEjections = 2
	// forgiven is how long a target must be Healthy until its ejections are forgotten.
	forgiven = time.Minute
)

// answers counts a target's answers in its group's window.
type answers struct {
	window    int
	good, bad int
	// row is the number of the latest failures in a row.
	row int
}

// Group compares the answers of targets that serve the same requests. The zero value is ready. A
// target that has been ejected comes back when the others fail alike: then the model, the program
// or its clients are the cause.
type Group struct {
	window    int
	began     time.Time
	good, bad int
	// well is the number of targets whose last answer in the window was good.
	well    int
	ejected []*Target
	// patientUntil is the time before which no target is ejected.
	patientUntil time.Time
	alone        alone
}

// Answered notes an answer of a target, and returns the targets whose state has changed by it.
// spare says that other targets serve what it serves: otherwise it is not ejected, and replaced only
// if it has not answered well for long.
func (g *Group) Answered(now time.Time, t *Target, failed, spare bool) (changed []*Target) {
	g.count(now, t, failed)
	if !failed {
		if t.state != Gone {
			g.alone.well()
		}
		if !t.probed(now) {
			return nil
		}
		t.until, t.healed = time.Time{}, now
		if t.state == Probing {
			t.state = Healthy
		}
		g.Forget(t)
		return []*Target{t}
	}
	if spare {
		g.alone.target = nil
	}
	serving := t.state == Healthy || t.state == Suspect
	switch {
	case serving && spare && !now.Before(g.patientUntil) && g.worse(t):
		g.eject(now, t)
		return []*Target{t}
	case serving && !spare && g.alone.failed(now, t):
		g.lose(t, ErrAlone)
		return []*Target{t}
	case g.allFail(now, t):
		return g.Reinstate(now)
	case t.probed(now):
		g.eject(now, t)
		return []*Target{t}
	}
	return nil
}

func (g *Group) count(now time.Time, t *Target, failed bool) {
	if now.Sub(g.began) >= window {
		g.restart(now)
	}
	if t.answers.window != g.window {
		t.answers = answers{window: g.window, row: t.answers.row}
	}
	a := &t.answers
	if a.good > 0 && a.row == 0 {
		g.well--
	}
	if failed {
		a.bad++
		a.row++
		g.bad++
		return
	}
	a.good++
	a.row = 0
	g.good++
	g.well++
}

func (g *Group) restart(now time.Time) {
	g.window++
	g.began, g.good, g.bad, g.well = now, 0, 0, 0
}

// worse reports whether a target fails more than its siblings, by more than chance.
//
// For example, if siblings have answered 20 requests well, a failure is expected with (0+1)/(20+2) =
// 4.5 %, and five in a row come by chance in one of five million cases, so it is ejected. If siblings
// have answered nothing, they are tried after five.
func (g *Group) worse(t *Target) bool {
	a := t.answers
	good, bad := float64(g.good-a.good), float64(g.bad-a.bad)
	n, others := float64(a.good+a.bad), good+bad
	if a.row >= fewest {
		expected := (bad + 1) / (others + 2)
		if others == 0 || math.Pow(expected, float64(a.row)) <= chance {
			return true
		}
	}
	if a.bad < fewest || others < fewest {
		return false
	}
	more := float64(a.bad)/n - bad/others
	all := (float64(a.bad) + bad) / (n + others)
	return more >= difference && more > sigmas*math.Sqrt(all*(1-all)*(1/n+1/others))
}

// allFail reports whether the targets that still serve fail alike since one was ejected.
func (g *Group) allFail(now time.Time, t *Target) bool {
	good, bad := g.good, g.bad
	if t.probed(now) {
		good, bad = good-t.answers.good, bad-t.answers.bad
	}
	return len(g.ejected) > 0 && g.well == 0 && bad >= fewest && float64(bad) >= alike*float64(good+bad)
}

// eject takes a target out, or gives it up. Where the siblings have answered nothing well since the
// last ejection, it says nothing about the target alone.
func (g *Group) eject(now time.Time, t *Target) {
	probed := t.probed(now)
	if !probed && now.Sub(t.healed) >= forgiven {
		t.ejections = 0
	}
	if g.good > t.answers.good {
		t.ejections++
	}
	g.restart(now)
	t.answers.row = 0
	if t.ejections > maxEjections {
		g.lose(t, ErrFailing)
		return
	}
	t.state = Ejected
	t.until = now.Add(firstPause << t.ejections)
	if !slices.Contains(g.ejected, t) {
		g.ejected = append(g.ejected, t)
	}
}

// lose gives a target up.
func (g *Group) lose(t *Target, why error) {
	t.state, t.why = Gone, why
	g.Forget(t)
}

// Reinstate makes the ejected targets Healthy and returns them. For a window none is ejected again.
// A driver calls it when no other target is left.
func (g *Group) Reinstate(now time.Time) []*Target {
	back := g.ejected
	g.ejected, g.patientUntil = nil, now.Add(window)
	g.restart(now)
	for _, t := range back {
		t.until, t.ejections = time.Time{}, 0
		if t.state == Ejected || t.state == Probing {
			t.state = Healthy
		}
	}
	return back
}

// Forget removes a target that has gone.
func (g *Group) Forget(t *Target) {
	g.alone.forget(t)
	g.ejected = slices.DeleteFunc(g.ejected, func(o *Target) bool { return o == t })
}

// Pause returns how long an ejected target serves nothing.
func (t *Target) Pause(now time.Time) time.Duration { return max(0, t.until.Sub(now)) }

// Probe makes an ejected target Probing if its time is over, and reports whether it has.
func (t *Target) Probe(now time.Time) bool {
	if t.state != Ejected || now.Before(t.until) {
		return false
	}
	t.state = Probing
	return true
}
