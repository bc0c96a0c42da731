package ragged

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// linear is a cost as small transformers have it.
func linear(rows, length int) float64 { return 20 + float64(rows*length)*(1+float64(length)/1000) }

// lowest tries every partition of rows into runs.
func lowest(lengths []int, maxRows int) float64 {
	n := len(lengths)
	best := math.Inf(1)
	of := make([]int, n)
	var try func(at, runs int)
	try = func(at, runs int) {
		if at == n {
			rows, longest := make([]int, runs), make([]int, runs)
			sum := 0.0
			for i, r := range of {
				rows[r]++
				longest[r] = max(longest[r], lengths[i])
			}
			for r := range runs {
				if rows[r] > maxRows {
					return
				}
				sum += linear(rows[r], longest[r])
			}
			best = min(best, sum)
			return
		}
		for r := range runs + 1 {
			of[at] = r
			try(at+1, max(runs, r+1))
		}
	}
	try(0, 0)
	return best
}

func costOf(lengths []int, runs [][]int, cost Cost) (sum float64) {
	for _, run := range runs {
		longest := 0
		for _, at := range run {
			longest = max(longest, lengths[at])
		}
		sum += cost(len(run), longest)
	}
	return sum
}

// No partition of the rows is cheaper than the runs.
func TestRunsAreTheCheapest(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		lengths := make([]int, 1+random.IntN(7))
		for i := range lengths {
			lengths[i] = 1 + random.IntN(120)
		}
		maxRows := 1 + random.IntN(5)
		got, want := costOf(lengths, Runs(lengths, linear, maxRows), linear), lowest(lengths, maxRows)
		if math.Abs(got-want) > 1e-6 {
			t.Errorf("%v, at most %d rows: the runs cost %v, the best %v", lengths, maxRows, got, want)
		}
	}
}

// Every row is in one run, no run is too large, and the runs cost no more than those that pad rows in the order in
// which they came.
func FuzzRuns(f *testing.F) {
	f.Add([]byte{1, 200, 3, 4, 4, 0}, uint8(3))
	f.Add([]byte{}, uint8(0))
	f.Fuzz(func(t *testing.T, given []byte, maxRows uint8) {
		lengths := make([]int, len(given))
		var naive [][]int
		most := max(1, int(maxRows))
		for i, n := range given {
			lengths[i] = int(n)
			if i%most == 0 {
				naive = append(naive, nil)
			}
			naive[len(naive)-1] = append(naive[len(naive)-1], i)
		}
		runs := Runs(lengths, linear, int(maxRows))
		seen := make([]bool, len(lengths))
		before := 0
		for _, run := range runs {
			if len(run) == 0 || len(run) > most {
				t.Fatalf("a run of %d rows, at most %d", len(run), most)
			}
			for _, at := range run {
				if seen[at] || lengths[at] < before {
					t.Fatalf("row %d is there twice, or out of order", at)
				}
				seen[at], before = true, lengths[at]
			}
		}
		if slices.Contains(seen, false) {
			t.Fatalf("a row is missing: %v", runs)
		}
		if got, most := costOf(lengths, runs, linear), costOf(lengths, naive, linear); got > most+1e-6 {
			t.Fatalf("the runs cost %v, without sorting they cost %v", got, most)
		}
	})
}

// Rows of few lengths make few runs, and padding stays small.
func TestPaddingOfMixedLengths(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	lengths := make([]int, 64)
	tokens := 0
	for i := range lengths {
		lengths[i] = 4 + int(16*random.ExpFloat64())
		tokens += lengths[i]
	}
	runs := Runs(lengths, new(Fit).Cost(), 32)
	padded := 0
	for _, run := range runs {
		padded += len(run) * lengths[run[len(run)-1]]
	}
	waste := 1 - float64(tokens)/float64(padded)
	if waste > 0.1 || len(runs) > 12 {
		t.Errorf("%d runs, %.1f %% of the tokens are padding", len(runs), 100*waste)
	}
}

// The fit finds the times of noisy runs.
func TestFit(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	truth := func(rows, length int) float64 {
		return 0.0008 + float64(rows*length)*(30e-6+12e-9*float64(length))
	}
	var f Fit
	for range 300 {
		rows, length := 1+random.IntN(32), 4+random.IntN(300)
		f.Observe(rows, length, truth(rows, length)*math.Exp(0.1*random.NormFloat64()))
	}
	cost := f.Cost()
	for _, at := range [][2]int{{1, 8}, {1, 200}, {8, 32}, {32, 64}, {32, 256}} {
		got, want := cost(at[0], at[1]), truth(at[0], at[1])
		if math.Abs(got/want-1) > 0.15 {
			t.Errorf("%v: %v, want %v", at, got, want)
		}
	}
}

// Runs of one size only say nothing of the overhead. It must not be lost, nor anything become negative.
func TestFitOfOneSize(t *testing.T) {
	var f Fit
	for range 1000 {
		f.Observe(1, 16, 0.002)
	}
	cost := f.Cost()
	if one, eight := cost(1, 16), cost(8, 16); math.Abs(one/0.002-1) > 0.05 || eight > 7.5*one || eight < one {
		t.Errorf("a row takes %v, eight rows %v", one, eight)
	}
	for _, took := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		f.Observe(1, 16, took)
	}
	if math.IsNaN(f.Cost()(4, 4)) {
		t.Error("no number")
	}
}

// The cost never falls with rows or length, whatever was observed.
func FuzzFit(f *testing.F) {
	f.Add(uint64(1), 5)
	f.Fuzz(func(t *testing.T, seed uint64, n int) {
		random := rand.New(rand.NewPCG(seed, 0))
		var fit Fit
		for range min(max(n, 0), 300) {
			fit.Observe(random.IntN(64), random.IntN(600), math.Exp(8*random.NormFloat64()-6))
		}
		cost := fit.Cost()
		for rows := 1; rows < 40; rows += 13 {
			for length := 1; length < 600; length += 100 {
				at := cost(rows, length)
				if !(at >= 0) || cost(rows+1, length) < at || cost(rows, length+1) < at {
					t.Fatalf("%d rows of %d: %v, then %v and %v", rows, length, at, cost(rows+1, length), cost(rows, length+1))
				}
			}
		}
	})
}
