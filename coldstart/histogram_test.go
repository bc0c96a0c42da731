package coldstart

import (
	"testing"
	"time"
)

func TestForecastByRegression(t *testing.T) {
	r := Recent{5 * time.Hour, 9 * time.Hour, 5 * time.Hour, 9 * time.Hour, 5 * time.Hour, 9 * time.Hour}
	if got := r.Forecast(); got < 5*time.Hour-time.Minute || got > 5*time.Hour+time.Minute {
		t.Errorf("after 5, 9, 5, 9, 5, 9 hours %v are forecast, not 5", got)
	}
	if got := (Recent{time.Hour, 3 * time.Hour}).Forecast(); got != 2*time.Hour {
		t.Errorf("the mean of two is %v", got)
	}
}

// A trail's histograms agree with its entries.
func TestTrail(t *testing.T) {
	var tr Trail
	now := time.Unix(1_000_000, 0)
	for i := range 4000 {
		now = now.Add(time.Duration(i*i%3000) * time.Second)
		tr.Add(now, time.Duration(i*7%300)*time.Minute)
	}
	var long, short Histogram
	for i, e := range tr.entries {
		if e.slot < slotOf(now.Add(-LongTerm)) || i > 0 && e.slot < tr.entries[i-1].slot {
			t.Fatalf("entry %d is of slot %d", i, e.slot)
		}
		long.put(e.bin, e.count)
		if e.slot >= slotOf(now.Add(-ShortTerm)) {
			short.put(e.bin, e.count)
		}
	}
	if long != tr.Long || short != tr.Short {
		t.Error("the histograms do not agree with the entries")
	}
}
