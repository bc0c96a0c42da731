package figure

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
)

// below returns a trial that bears loads up to a limit. It counts the trials.
func below(limit float64, trials *int) Trial {
	return func(_ context.Context, load float64) (bool, error) {
		*trials++
		return load <= limit, nil
	}
}

func TestHighest(t *testing.T) {
	for _, limit := range []float64{1000, 999, 700, 500, 123.4, 3, 1} {
		trials := 0
		got, err := Highest(t.Context(), SearchOptions{Most: 1000, Precision: 0.01, Least: 1e-4}, below(limit, &trials))
		if err != nil {
			t.Fatal(err)
		}
		if got > limit || got < limit/1.0101 {
			t.Errorf("limit %v: %v", limit, got)
		}
		if most := 8 + int(math.Ceil(Rungs*math.Log2(1000/limit))); trials > most {
			t.Errorf("limit %v takes %d trials, more than %d", limit, trials, most)
		}
	}
}

// The search tries Most first, and each load only once.
func TestLoadsAreTriedOnceFromTheTop(t *testing.T) {
	seen := map[float64]bool{}
	first := 0.0
	_, err := Highest(t.Context(), SearchOptions{Most: 100, Precision: 0.01, Least: 1e-3}, func(_ context.Context, load float64) (bool, error) {
		if first == 0 {
			first = load
		}
		if seen[load] {
			t.Errorf("%v is tried twice", load)
		}
		seen[load] = true
		return load <= 42, nil
	})
	if err != nil || first != 100 {
		t.Errorf("the first is %v, %v", first, err)
	}
}

func TestNothingIsBorne(t *testing.T) {
	trials := 0
	got, err := Highest(t.Context(), SearchOptions{Most: 8, Precision: 0.01, Least: 0.1}, below(0, &trials))
	if most := 1 + int(Rungs*math.Log2(10)); got != 0 || err != nil || trials > most {
		t.Errorf("got %v, %v after %d trials", got, err, trials)
	}
}

// A gap in the borne loads does not end the search, however wide it is.
func TestBorneAboveAGap(t *testing.T) {
	for _, wide := range []func(load float64) bool{
		func(load float64) bool { return load < 400 || load > 410 && load < 800 || load > 810 && load < 835 },
		func(load float64) bool { return load < 6 || load > 100 && load < 126 || load > 680 && load < 835 },
	} {
		got, err := Highest(t.Context(), SearchOptions{Most: 1000, Precision: 0.01, Least: 1e-3}, func(_ context.Context, load float64) (bool, error) {
			return wide(load), nil
		})
		if err != nil || got < 826 || got > 835 {
			t.Errorf("got %v, %v", got, err)
		}
	}
}

func TestErrors(t *testing.T) {
	if _, err := Highest(t.Context(), SearchOptions{Most: math.NaN(), Precision: 0.1}, nil); err == nil {
		t.Error("a search without an end")
	}
	broken := errors.New("broken")
	_, err := Highest(t.Context(), SearchOptions{Most: 4, Precision: 0.1}, func(context.Context, float64) (bool, error) { return false, broken })
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "a load of 4") {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err = Highest(ctx, SearchOptions{Most: 4, Precision: 0.01}, func(context.Context, float64) (bool, error) { cancel(); return false, nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
