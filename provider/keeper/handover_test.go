package keeper

import "testing"

func TestHandOver(t *testing.T) {
	for _, c := range []struct {
		ready, serving, wanted float64
		over                   bool
	}{
		{0, 0, 1, true}, {0, 1, 1, false}, {1, 1, 1, true}, {1, 4, 4, false}, {3, 4, 4, false}, {4, 4, 4, true},
		{2, 2, 4, true}, {1, 4, 1, true}, {0, 2, 0, false}, {5, 4, 9, true},
	} {
		if over := HandOver(c.ready, c.serving, c.wanted); over != c.over {
			t.Errorf("%+v: %v", c, over)
		}
	}
}
