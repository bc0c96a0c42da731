package partition

import (
	"errors"
	"fmt"
	"testing"
)

// rounds makes a plan of rounds whose parts have these weights in MiB; part 0 of each is the
// master's if master.
func rounds(master bool, weights ...[]int64) *Plan {
	p := &Plan{}
	for i, of := range weights {
		r := Round{First: i, End: i + 1, Option: &Option{}, Master: Nobody}
		for _, w := range of {
			r.Option.Parts = append(r.Option.Parts, Part{Weights: w * mib, Activations: mib})
		}
		if master {
			r.Master = 0
		}
		p.Rounds = append(p.Rounds, r)
	}
	return p
}

// Workers hold parts of several rounds as long as they have room.
func TestAssign(t *testing.T) {
	for _, c := range []struct {
		what         string
		plan         *Plan
		memory, most int64
		on           string
		needed       int
	}{
		{"two rounds in two parts", rounds(true, []int64{5, 5}, []int64{7, 7}), 13, 2, "[[0 1] [0 1]]", 2},
		{"no room for the second", rounds(true, []int64{5, 5}, []int64{7, 7}), 12, 3, "[[0 1] [0 2]]", 3},
		{"too few members", rounds(true, []int64{5, 5}, []int64{7, 7}), 12, 2, "", 3},
		{"one after the other", rounds(false, []int64{9}, []int64{9}, []int64{9}), 20, 3, "[[1] [1] [2]]", 3},
		{"the least weights first", rounds(true, []int64{1, 6, 2}, []int64{1, 3}), 20, 3, "[[0 1 2] [0 2]]", 3},
	} {
		on, members, err := c.plan.Assign(c.memory*mib, int(c.most))
		if c.on == "" {
			var few *MembersError
			if !errors.As(err, &few) || few.Needed != c.needed {
				t.Errorf("%s: %v", c.what, err)
			}
			continue
		}
		if err != nil || fmt.Sprint(on) != c.on || len(members) != c.needed {
			t.Errorf("%s: %v on %d members, %v", c.what, on, len(members), err)
		}
		for i := range members[1:] {
			if members[i+1].holds() > c.memory*mib {
				t.Errorf("%s: member %d holds %d", c.what, i+1, members[i+1].holds())
			}
		}
	}
}
