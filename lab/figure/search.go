package figure

import (
	"context"
	"fmt"
	"math"
)

// Trial reports whether a system bears a load.
type Trial func(ctx context.Context, load float64) (borne bool, err error)

// SearchOptions bound a search.
type SearchOptions struct {
	// Most is a load that no system exceeds. It must be positive.
	Most float64
	// Precision is the relative distance from the answer to a load that the system does
	// not bear: 0.01 is 1 %.
	Precision float64
	// Least ends the search downwards, as a part of Most. If the system bears no load
	// down to there, the answer is 0.
	Least float64
}

// Rungs is the number of steps into which the search divides each halving of the load on
// the way down: 4 are steps of 2^¼, 19 %.
const Rungs = 4

// Highest returns the highest load that trials show a system to bear, 0 if there is none.
// The answers of trials need not be monotone: schedulers place in steps, and a system may
// fail under a load and bear ten times as much. Therefore the search comes from above, the
// same way for every system. It tries Most first, then the loads of a ladder downwards,
// each 2^¼ times as high as the next, until the system bears one. So it skips no interval
// of loads wider than such a step. Then it halves the logarithm of the gap to the rung
// above. If the system bears a load a few steps above the answer, it continues from there.
// An error is trial's, with the load.
//
// If a system bears a tenth of Most and the precision is 1 %, that takes 14 trials on the
// ladder, 4 in the gap and 2 above.
func Highest(ctx context.Context, o SearchOptions, trial Trial) (float64, error) {
	if !(o.Most > 0) || !(o.Precision > 0 && o.Precision < 1) {
		return 0, fmt.Errorf("search up to %v with a precision of %v: the first must be above 0, the second between 0 and 1", o.Most, o.Precision)
	}
	try := func(load float64) (bool, error) {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		ok, err := trial(ctx, load)
		if err != nil {
			return false, fmt.Errorf("at a load of %.4g: %w", load, err)
		}
		return ok, nil
	}
	low, high, err := ladder(try, o)
	if err != nil || low == 0 {
		return 0, err
	}
	for {
		var err error
		if low, err = halve(try, o, low, high); err != nil {
			return 0, err
		}
		next, err := above(try, o, low)
		if err != nil || next == 0 {
			return low, err
		}
		low, high = next, next*(1+o.Precision)*(1+o.Precision)
	}
}

// ladder goes down from Most until the system bears a load. It returns that load and the
// rung above, or 0 if it bears none.
func ladder(try func(float64) (bool, error), o SearchOptions) (low, high float64, err error) {
	high = o.Most
	for rung := 0; ; rung++ {
		load := o.Most * math.Pow(2, -float64(rung)/Rungs)
		if rung > 0 && !(load >= o.Most*o.Least) {
			return 0, 0, nil
		}
		ok, err := try(load)
		if err != nil {
			return 0, 0, err
		}
		if ok {
			return load, high, nil
		}
		high = load
	}
}

// halve narrows the gap between a load low that the system bears and a load high that it
// does not, to the precision.
func halve(try func(float64) (bool, error), o SearchOptions, low, high float64) (float64, error) {
	for high > low*(1+o.Precision) {
		middle := math.Sqrt(low * high)
		ok, err := try(middle)
		if err != nil {
			return 0, err
		}
		if ok {
			low = middle
		} else {
			high = middle
		}
	}
	return low, nil
}

// steps are numbers of precision steps above the answer that are tried too.
var steps = []float64{3, 6}

// above returns the highest load of those a few steps above low that the system bears, or
// 0.
func above(try func(float64) (bool, error), o SearchOptions, low float64) (float64, error) {
	best := 0.0
	for _, n := range steps {
		load := low * math.Pow(1+o.Precision, n)
		if load > o.Most {
			break
		}
		ok, err := try(load)
		if err != nil {
			return 0, err
		}
		if ok {
			best = load
		}
	}
	return best, nil
}
