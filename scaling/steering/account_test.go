package steering

import (
	"testing"
	"time"
)

// A model takes a third of the predicted time, and the plan holds three times what is needed. The level falls step by
// step, and capacity with it. Few requests miss the objective meanwhile.
func TestCapacityThatIsNotNeededGoes(t *testing.T) {
	p := newPlant(20, 0.33, 1000, look)
	p.loop.Accounts = true
	p.run(2*time.Minute, steady(400))
	before := p.units
	p.run(20*time.Minute, steady(400))
	if p.units > before*3/4 || p.loop.Level() >= 1 {
		t.Errorf("%d units of %d are left, at a level of %.2f", p.units, before, p.loop.Level())
	}
	if missed := float64(p.seen.Refused) / float64(p.seen.InTime+p.seen.Refused); missed > 0.01 {
		t.Errorf("%.2f %% missed the objective, 1 %% may", 100*missed)
	}
}

// misses offers a hundred requests a second to a loop, of which some miss the objective at a level. The capacity
// follows the level at once. It returns the part that missed in the last tenth of the time.
func misses(l *Loop, d time.Duration, of func(level float64) float64) (late float64) {
	s := Seen{Percentile: 99.9}
	owed, last, all := 0.0, 0.0, 0.0
	for at := time.Duration(0); at < d; at += look {
		s.Capacity = int(1000 * l.Level())
		s.Planned = max(1, l.Level()) // The loop multiplies it by a level below 1.
		owed += 10 * of(l.Level())
		n := uint64(owed)
		owed -= float64(n)
		s.InTime, s.Late = s.InTime+10-n, s.Late+n
		l.Look(epoch.Add(at), s)
		if at > d*9/10 {
			last, all = last+float64(n), all+10
		}
	}
	return last / all
}

// Three times as many requests miss the objective as may, a few at a time, which is never trouble. The level
// rises until no more miss it than may, and stays while that is so.
func TestDebtsArePaid(t *testing.T) {
	l := Loop{Accounts: true}
	late := misses(&l, time.Hour, func(level float64) float64 { return max(0.0003, 0.003-0.01*(level-1)) })
	if late > 0.001 || l.Level() > owing {
		t.Errorf("%.4f miss the objective at a level of %.2f", late, l.Level())
	}
}

// An increase for a debt that does not help is undone.
func TestDebtsThatCannotBePaidCostNothing(t *testing.T) {
	l := Loop{Accounts: true}
	raised := 0
	misses(&l, time.Hour, func(level float64) float64 {
		if level > 1 {
			raised++
		}
		return 0.003
	})
	if part := float64(raised) / float64(time.Hour/look); part > 0.25 {
		t.Errorf("the level was above 1 for %.0f %% of an hour", 100*part)
	}
}

// Without requests nothing is known, and the level stays.
func TestNoRequestsEarnNothing(t *testing.T) {
	l := Loop{Accounts: true}
	s := Seen{Percentile: 99, Capacity: 1000, Planned: 1}
	for at := range 10 * time.Hour / look {
		l.Look(epoch.Add(look*at), s)
	}
	if l.Level() != 1 {
		t.Errorf("the level is %v", l.Level())
	}
}
