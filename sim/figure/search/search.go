// Package search finds the highest load that a system bears, asking whether it
// bears one load at a time.
package search

import (
	"context"
	"fmt"
	"math"
)

// Trial tells whether a load is borne.
type Trial func(ctx context.Context, load float64) (borne bool, err error)

// Options bound a search.
type Options struct {
	// Most is a load above which none is borne; it must be positive. Start is
	// where the answer is likely to be; 0 is Most.
	Most, Start float64
	// Precision is how near, as a part of it, the answer is to a load that is
	// not borne: 0.01 is 1 %.
	Precision float64
	// Least ends the search downwards: where not even this part of Most is
	// borne, the answer is 0.
	Least float64
}

// Highest is a load that is borne while one a little higher is not, and 0 if even
// the least is not. Whether loads are borne need not be monotone, since schedulers
// place in steps: where a load a few steps above the answer is borne after all,
// the search goes on from there. An error is trial's, with the load.
//
// It goes from Start in steps of √2 until a load is borne and the next one is not,
// then halves the logarithm of the gap: with the answer between Start/√2 and Start
// and a precision of 1 %, 8 trials and 2 for the steps above.
func Highest(ctx context.Context, o Options, trial Trial) (float64, error) {
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
	low, high, err := bracket(try, o)
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

// bracket finds a load that is borne and a higher one that is not; 0 if none is
// borne.
func bracket(try func(float64) (bool, error), o Options) (low, high float64, err error) {
	if o.Start <= 0 || o.Start > o.Most {
		o.Start = o.Most
	}
	for load := o.Start; ; {
		ok, err := try(load)
		switch {
		case err != nil:
			return 0, 0, err
		case ok && high > 0:
			return load, high, nil
		case ok && load == o.Most:
			return load, load, nil
		case ok:
			low, load = load, min(load*math.Sqrt2, o.Most)
		case low > 0:
			return low, load, nil
		default:
			if high, load = load, load/math.Sqrt2; load < o.Most*o.Least {
				return 0, 0, nil
			}
		}
	}
}

// halve closes the gap between a load that is borne and one that is not.
func halve(try func(float64) (bool, error), o Options, low, high float64) (float64, error) {
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
func above(try func(float64) (bool, error), o Options, low float64) (float64, error) {
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
