package cluster

import "testing"

// Members that wait for each other share the CPU of those that compute (Gillis §III-B: a round's
// parts compute at the same time, and rounds one after the other).
func TestMembersShareTheCPU(t *testing.T) {
	for _, x := range []struct {
		parts, active int
		apart         bool
		cpu           int // of the set
		each, quota   int // of a member
		computes      int
	}{
		{3, 1, false, 1000, 333, 1000, 1000},
		{3, 2, false, 2000, 666, 1000, 2000},
		{3, 2, false, 3000, 1000, 1500, 3000},
		{3, 3, false, 3000, 1000, 1000, 3000},
		{3, 0, false, 3000, 1000, 1000, 3000},
		{3, 1, true, 3000, 1000, 1000, 1000},
		{3, 2, true, 1500, 500, 500, 1000},
		{0, 0, false, 500, 500, 500, 500},
	} {
		c := Config{Batch: 1, Parts: x.parts, Active: x.active, Apart: x.apart, Resources: Resources{CPU: x.cpu, Memory: int64(max(1, x.parts)) << 20}}
		m := c.Share()
		if m.CPU != x.each || m.Quota() != x.quota || c.Computes() != x.computes || c.Quota() != x.cpu {
			t.Errorf("%+v: a member holds %d and may use %d, and %d compute", x, m.CPU, m.Quota(), c.Computes())
		}
		if m.Threads() != (x.quota+999)/1000 || c.Together() != (x.each != x.quota) {
			t.Errorf("%+v: %d threads, together %t", x, m.Threads(), c.Together())
		}
		if back := m.Sum(); back != c {
			t.Errorf("%+v: the sum of its members is %+v", x, back)
		}
	}
}
