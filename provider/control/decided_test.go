package control

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/provider/decisions"
)

// said returns the texts about a function of a kind.
func said(l *decisions.Log, name string, kind decisions.Kind) (texts []string) {
	found, _ := l.Since(0, "", name, 0)
	for _, d := range found {
		if d.Kind == kind {
			texts = append(texts, d.Text)
		}
	}
	return texts
}

// Whatever the controller does about a function is in the log, with the reason.
func TestDecisionsAreLogged(t *testing.T) {
	l := decisions.NewLog()
	tryWith(t, func(o *Options) { parks(o); o.Decisions = l }, func(r *rig) {
		has := func(kind decisions.Kind, parts ...string) {
			t.Helper()
			texts := said(l, "f", kind)
			if !slices.ContainsFunc(texts, func(text string) bool {
				return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(text, part) })
			}) {
				t.Errorf("%s: %q, want one with %q", kind, texts, parts)
			}
		}
		r.measured("f", "m")
		r.answered("f", "m")
		has(decisions.Start, "Started an instance ⟨", " on ", "1 request waited, and no instance was ready.")
		r.allParked("f")
		has(decisions.Park, "so others can use its CPU: no request for 2 s.")
		r.answered("f", "m")
		has(decisions.Unpark, "1 request waited, and no instance was ready.")
		r.load("f", 2*time.Millisecond, 10*time.Second)
		has(decisions.Start, "the load is ", "/s with headroom, and the instances carried ")
		r.deploy("f", "m2")
		r.load("f", 10*time.Millisecond, 20*time.Second)
		has(decisions.Start, "the instances of the earlier revision are replaced.")
		has(decisions.Revision, "Revision 2 answers from now on, because its instances carry ")
		has(decisions.Stop, "the instances of the later revision")
		time.Sleep(2 * keepAlive)
		has(decisions.Stop, "no request for ")
	})
}

// A problem that lasts is told once, and so is its end.
func TestProblemsAreLogged(t *testing.T) {
	l := decisions.NewLog()
	tryWith(t, func(o *Options) { o.Decisions = l }, func(r *rig) {
		r.backend.widen(0)
		r.measured("f", "m")
		go r.invoke("f", "x")
		time.Sleep(5 * time.Second)
		problems := said(l, "f", decisions.Problem)
		if len(problems) != 1 || !strings.Contains(problems[0], "Problem: ") {
			t.Errorf("problems: %q", problems)
		}
		r.backend.widen(16000)
		r.answered("f", "m")
		time.Sleep(10 * time.Second)
		if solved := said(l, "f", decisions.Solved); len(solved) != 1 {
			t.Errorf("solved: %q", solved)
		}
	})
}
