package processes

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faas-infer/faas-infer/provider/decisions"
)

// What happens to an ordinary function's instances is in the log of decisions, with the reason.
func TestDecisionsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := decisions.NewLog()
		r := newRig(t)
		r.options.Decisions = l
		r.open()
		r.run()
		defer r.close()
		r.deploy("f", "a", between(2, 2))
		r.ready("f", 2)
		r.backend.crash(r.backend.living()[0].ID, "killed by signal 9")
		r.ready("f", 2)
		time.Sleep(keeperSettles)
		r.deploy("f", "b", between(1, 1))
		r.ready("f", 1)
		r.answered("f", "b")
		time.Sleep(keeperSettles)
		var all []string
		found, _ := l.Since(0, "", "f", 0)
		for _, d := range found {
			all = append(all, fmt.Sprint(d.Kind, ": ", d.Text))
		}
		for _, want := range []string{
			"start: Started 2 instances on ", "the function needs 2 of them.", "exit: An instance on ", " exited: killed by signal 9.",
			"the instances of the earlier revision are replaced.", "stop: Stopped an instance on ", "replace it.",
		} {
			if !slices.ContainsFunc(all, func(text string) bool { return strings.Contains(text, want) }) {
				t.Errorf("no %q in %q", want, all)
			}
		}
	})
}

// keeperSettles is when nothing about the instances changes any more.
const keeperSettles = 30 * time.Second
