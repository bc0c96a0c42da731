package scaling

import (
	"math"
	"testing"
	"time"
)

// rowsOf reads requests of so many rows, rate/s for so long, and returns the last mean.
func rowsOf(m *MeanRows, now *time.Time, counts *[2]uint64, rate, rows int, long time.Duration) (mean float64) {
	for end := now.Add(long); now.Before(end); {
		*now = now.Add(time.Second / time.Duration(rate))
		counts[0], counts[1] = counts[0]+1, counts[1]+uint64(rows-1)
		mean = m.Read(*now, counts[0], counts[1])
	}
	return mean
}

// The mean follows busy functions within seconds. In one with few requests a single one with many rows is not the
// load, and a pause changes nothing.
func TestMeanRows(t *testing.T) {
	var m MeanRows
	now, counts := time.Unix(1000, 0), [2]uint64{7, 1000}
	if mean := m.Read(now, counts[0], counts[1]); mean != 1 {
		t.Errorf("before any request it is %v", mean)
	}
	if mean := rowsOf(&m, &now, &counts, 50, 1, time.Minute); mean != 1 {
		t.Errorf("of single rows it is %v", mean)
	}
	if mean := rowsOf(&m, &now, &counts, 50, 64, 30*time.Second); math.Abs(mean-64) > 5 {
		t.Errorf("half a minute after each request has 64 rows it is %v", mean)
	}
	rowsOf(&m, &now, &counts, 1, 1, 5*time.Minute)
	if mean := rowsOf(&m, &now, &counts, 1, 64, time.Second); mean < 2 || mean > 3 {
		t.Errorf("one of 64 among fifty of one are %v", mean)
	}
	before := m.Read(now, counts[0], counts[1])
	now = now.Add(time.Hour)
	if mean := m.Read(now, counts[0], counts[1]); mean != before {
		t.Errorf("after a pause it is %v, not %v", mean, before)
	}
}

// Counters that begin again, as those of another process, lose nothing and count nothing twice.
func TestMeanRowsOfOtherCounters(t *testing.T) {
	var m MeanRows
	now, counts := time.Unix(1000, 0), [2]uint64{}
	before := rowsOf(&m, &now, &counts, 10, 8, time.Minute)
	if mean := m.Read(now.Add(time.Second), 3, 0); mean != before || mean < 7 {
		t.Errorf("it is %v, and was %v", mean, before)
	}
}
