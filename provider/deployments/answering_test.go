package deployments

import "testing"

// The new revision answers once enough of its instances are ready, and the earlier one never again.
func TestAnswering(t *testing.T) {
	for _, c := range []struct {
		what             string
		before, deployed uint64
		up               map[uint64]int
		wanted           int
		answers          uint64
	}{
		{"nothing is up", 0, 1, nil, 1, 0},
		{"the first instance", 0, 1, map[uint64]int{1: 1}, 4, 1},
		{"the update has begun", 1, 2, map[uint64]int{1: 4, 2: 1}, 4, 1},
		{"half of it is done", 1, 2, map[uint64]int{1: 2, 2: 2}, 4, 2},
		{"one instance", 1, 2, map[uint64]int{1: 1, 2: 1}, 1, 2},
		{"fewer are wanted", 1, 2, map[uint64]int{1: 4, 2: 1}, 1, 2},
		{"the earlier ones are gone", 1, 2, map[uint64]int{2: 1}, 4, 2},
		{"the new one is silent", 2, 2, map[uint64]int{1: 2}, 4, 2},
		{"a third one", 2, 3, map[uint64]int{1: 1, 2: 3, 3: 1}, 4, 2},
		{"the third one is undone", 3, 2, map[uint64]int{2: 3}, 4, 2},
		{"a provider restarts early in an update", 0, 2, map[uint64]int{1: 3, 2: 1}, 4, 1},
		{"a provider restarts late in an update", 0, 2, map[uint64]int{1: 1, 2: 3}, 4, 2},
	} {
		if got := answering(c.before, c.deployed, c.up, c.wanted); got != c.answers {
			t.Errorf("%s: %d answers, want %d", c.what, got, c.answers)
		}
	}
}
