package peer

import (
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/provider/decisions"
)

// Each replica knows what the others decide, once.
func TestDecisionsAreKnownToAll(t *testing.T) {
	_, all := several(t, 3)
	now := time.Now()
	all[0].options.Decisions.Add(now, name, decisions.Start, decisions.Fields{Instances: 1})
	all[1].options.Decisions.Add(now, name, decisions.Update, decisions.Fields{Image: "f"})
	has := func(o *one, n int) bool {
		found, _ := o.options.Decisions.Since(0, "", "", 0)
		return len(found) >= n
	}
	until(t, "told", func() bool { return has(all[0], 2) && has(all[1], 2) && has(all[2], 2) })
	all[0].options.Decisions.Add(now, name, decisions.Stop, decisions.Fields{Instances: 1})
	until(t, "told of the next", func() bool { return has(all[0], 3) && has(all[1], 3) && has(all[2], 3) })
	for _, o := range all {
		if has(o, 4) {
			found, _ := o.options.Decisions.Since(0, "", "", 0)
			t.Errorf("%s knows %+v", o.own.id, found)
		}
	}
}
