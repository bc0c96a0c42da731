package figure

import (
	"context"
	"fmt"
	"math"
)

// Trial tells whether a load is borne.
type Trial func(ctx context.Context, load float64) (borne bool, err error)

// SearchOptions bound a search.
type SearchOptions struct {
	// Most is a load above which none is borne; it must be positive.
	Most float64
	// Precision is how near, as a part of it, the answer is to a load that is
	// not borne: 0.01 is 1 %.
	Precision float64
	// Least ends the search downwards: where not even this part of Most is
	// borne, the answer is 0.
	Least float64
}

// Rungs is into how many steps each halving of the load is divided on the way
// down: 4 are steps of 2^¼, 19 %.
const Rungs = 4

// Highest is the highest load that is borne, as far as trials show, and 0 if even the
// least is not. Whether loads are borne need not be monotone: schedulers place in
// steps, and a system may fail under a load and bear ten times as much. So the
// search comes from above, the same way for every system: it tries Most first, then
// the loads of a ladder downwards, each 2^¼ times as high as the next, until one is
// borne. No interval of loads wider than such a step is passed over. Then it halves
// the logarithm of the gap to the rung above; where a load a few steps above the
// answer is borne after all, it goes on from there. An error is trial's, with the
// load.
//
// Where a tenth of Most is borne and a precision of 1 % is asked for, that is 14
// trials on the ladder, 4 in the gap and 2 above.
func Highest(ctx context.Context, o SearchOptions, trial Trial) (float64, error) {
	if !(o.Most > 0) || !(o.Precision > 0 && o.Precision < 1) {
		return 0, fmt.Errorf("a search up to %v by steps of %v", o.Most, o.Precision)
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

// ladder goes down from the most until a load is borne, and returns it and the rung
// above, which is not; 0 if none is borne.
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

// halve closes the gap between a load that is borne and one that is not.
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

// steps above the answer are tried in case they are borne after all.
var steps = []float64{3, 6}

// above is the highest of the loads a few steps above low that is borne, or 0.
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
