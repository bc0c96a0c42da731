package steering

import (
	"math"
	"testing"
	"time"
)

// The example of the documentation of credit: when is there enough for a wrong release?
func TestCreditPaysForAWrongRelease(t *testing.T) {
	for percentile, want := range map[float64]time.Duration{90: 8 * time.Second, 99: 80 * time.Second, 99.9: 800 * time.Second} {
		var l Loop
		seen, at, full := Seen{Percentile: percentile, Start: 300 * time.Millisecond}, epoch, time.Duration(0)
		l.credit.rate = 200
		for ; at.Sub(epoch) < 1000*time.Second; at = at.Add(look) {
			seen.InTime += 20
			if l.Look(at, seen); full == 0 && l.Credit() > 1-1e-6 {
				full = at.Sub(epoch)
			}
		}
		if d := full - want; d < -look || d > look {
			t.Errorf("%v %%: the credit is full after %v, want %v", percentile, full, want)
		}
		seen.Late += 60
		l.Look(at, seen)
		want := math.Max(0, 1-60/l.credit.cost)
		if got := l.Credit(); math.Abs(got-want) > 0.04 {
			t.Errorf("%v %%: 60 requests missed the objective, and the credit is %v, want %v", percentile, got, want)
		}
	}
}

// A release costs half a second of requests. They are released whenever the credit is full, and each release is wrong.
// In the long run no more requests miss the objective than half of what may.
func TestReleasesThatAreAllWrongKeepThePercentile(t *testing.T) {
	for _, percentile := range []float64{90, 95, 99, 99.9} {
		var l Loop
		seen, at, wrong := Seen{Percentile: percentile, Start: 300 * time.Millisecond, Rate: 100}, epoch, 0
		for ; at.Sub(epoch) < 2*time.Hour; at = at.Add(look) {
			if wrong == 0 && l.Credit() == 1 {
				wrong = 5
			}
			if seen.InTime += 10; wrong > 0 {
				seen.InTime, seen.Late, wrong = seen.InTime-10, seen.Late+10, wrong-1
			}
			l.Look(at, seen)
		}
		missed, may := float64(seen.Late)/float64(seen.InTime+seen.Late), 1-percentile/100
		if missed > share*may*1.01 || missed < share*may*0.5 {
			t.Errorf("%v %%: %.4f miss the objective, %.4f may", percentile, missed, may)
		}
	}
}

// A function without requests, or without an objective's outcomes, earns nothing.
func TestNoRequestsEarnNoCredit(t *testing.T) {
	var l Loop
	for at := range 10 * time.Hour / look {
		l.Look(epoch.Add(look*at), Seen{Percentile: 99})
	}
	if l.Credit() != 0 || l.Level() != 1 {
		t.Errorf("the credit is %v, the level %v", l.Credit(), l.Level())
	}
}

// With a full credit a level is tried lower sooner.
func TestCreditLowersLevelsSooner(t *testing.T) {
	falls := func(credit float64) time.Duration {
		l := Loop{level: 2, hold: shortest, calm: epoch}
		l.credit.cost, l.credit.requests = 10, 10*credit
		for at := time.Duration(0); ; at += look {
			if l.lower(epoch.Add(at)); l.Level() < 2 {
				return at
			}
		}
	}
	if none, full := falls(0), falls(1); none != shortest || full != shortest-sooner {
		t.Errorf("after %v without credit, %v with all", none, full)
	}
}
