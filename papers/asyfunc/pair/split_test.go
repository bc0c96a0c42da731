package pair

import (
	"context"
	"math"
	"testing"
	"time"
)

// Shares by hand, with 1 s for a row of Φ on the body: 8 rows on two equals are 4 and 4. With
// 2 s of the body's own layers the shadow has 5 rows if it is not to wait: 2 + 3 = 5.
func TestShares(t *testing.T) {
	for _, test := range []struct {
		r         rates
		pipelined bool
		want      []float64
	}{
		{rates{own: 2, body: 1, shadows: []float64{1}, most: []int{99}}, false, []float64{4}},
		{rates{own: 2, body: 1, shadows: []float64{1}, most: []int{99}}, true, []float64{5}},
		{rates{own: 2, body: 1, shadows: []float64{1}, most: []int{3}}, true, []float64{3}},
		{rates{own: 0, body: 1, shadows: []float64{1, 3}, most: []int{99, 99}}, false, []float64{24. / 7, 8. / 7}},
		{rates{own: 1, body: 1, shadows: []float64{1, 1}, most: []int{1, 99}}, true, []float64{1, 4}},
		{rates{own: 99, body: 1, shadows: []float64{1}, most: []int{99}}, true, []float64{8}}, // All that there are.
		{rates{shadows: []float64{0}, most: []int{99}}, true, []float64{4}},                   // Nothing is known.
		{rates{body: 1, shadows: []float64{0}, most: []int{99}}, false, []float64{4}},
	} {
		got := test.r.shares(8, test.pipelined)
		for i := range test.want {
			if math.Abs(got[i]-test.want[i]) > 1e-9 {
				t.Errorf("%+v: %v, not %v", test, got, test.want)
			}
		}
	}
}

// Whole shares are the exact ones on average, and never more than there is.
func TestWholeShares(t *testing.T) {
	carry, sum := make([]float64, 2), [2]int{}
	for range 1000 {
		n := whole(4, []float64{2.3, 0.9}, []int{4, 4}, carry)
		sum[0], sum[1] = sum[0]+n[0], sum[1]+n[1]
		if n[0]+n[1] > 4 || n[0] < 0 || n[1] < 0 {
			t.Fatal(n)
		}
	}
	if math.Abs(float64(sum[0])/1000-2.3) > 0.01 || math.Abs(float64(sum[1])/1000-0.9) > 0.01 {
		t.Error(sum)
	}
	if n := whole(4, []float64{3.9}, []int{2}, make([]float64, 1)); n[0] != 2 {
		t.Error(n)
	}
}

func TestPhi(t *testing.T) {
	for _, good := range []string{"0:18", "0:1,2:3", "5:6,9:40"} {
		if p, err := ParsePhi(good); err != nil || p.String() != good {
			t.Error(good, p, err)
		}
	}
	for _, bad := range []string{"", "1", "2:2", "0:2,2:3", "-1:2", "3:5,1:2", "a:b"} {
		if p, err := ParsePhi(bad); err == nil {
			t.Error(bad, p)
		}
	}
}

// The turn goes first to what feeds a shadow, then to the oldest batch; one that gives up passes
// it on.
func TestTurn(t *testing.T) {
	var u turn
	if err := u.take(t.Context(), false, 1); err != nil {
		t.Fatal(err)
	}
	order := make(chan int, 3)
	for i, w := range []struct {
		feeds bool
		batch uint64
	}{{false, 3}, {false, 2}, {true, 4}} {
		go func() {
			if u.take(context.Background(), w.feeds, w.batch) == nil {
				order <- i
				u.give()
			}
		}()
		for { // Until it waits.
			u.mu.Lock()
			n := len(u.waiting)
			u.mu.Unlock()
			if n == i+1 {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if u.take(ctx, true, 0) == nil {
		t.Error("it was given to one that does not wait any more")
	}
	u.give()
	if a, b, c := <-order, <-order, <-order; a != 2 || b != 1 || c != 0 {
		t.Error(a, b, c)
	}
}
