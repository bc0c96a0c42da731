package history

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// A series that was saved and restored shows what it did, and goes on with counters that begin at 0.
func TestSaved(t *testing.T) {
	bounds := []float64{1, 10, 100}
	none := Sample{Latency: make([]uint64, 4), Batches: make([]uint64, 2)}
	random := rand.New(rand.NewPCG(1, 2))
	var total Sample
	total.Latency, total.Batches = make([]uint64, 4), make([]uint64, 2)
	s := New(10_000, bounds, none)
	grow := func() Sample {
		n := random.Uint64N(9)
		total.Arrived, total.InTime, total.Late = total.Arrived+n+1, total.InTime+n, total.Late+1
		total.Latency[random.IntN(4)] += n + 1
		total.Batches[random.IntN(2)]++
		total.Carries, total.Waiting, total.Instances, total.Cost = random.Float64()*1000, random.IntN(5), 2, 1500
		return total
	}
	for at := int64(10_001); at < 12_000; at += 1 + random.Int64N(3) {
		s.Add(at, grow())
	}
	text := s.Saved()
	t.Logf("%d bytes", len(text))
	back, err := Restore(text, bounds, none)
	if err != nil {
		t.Fatal(err)
	}
	show := func(s *Series) string {
		latency, batches := s.Distributions()
		return fmt.Sprint(s.Minute(), s.Hour(), s.Points(60, 1), s.Points(3600, 30), latency, batches, s.LastMinute())
	}
	if got, want := show(back), show(s); got != want {
		t.Errorf("restored\n%s\nwant\n%s", got, want)
	}

	// The next run of the provider counts from 0.
	before := back.Hour().Arrived
	back.Add(12_050, Sample{Counts: Counts{Arrived: 3, InTime: 3}, Latency: []uint64{3, 0, 0, 0}, Batches: []uint64{1, 0}})
	if got := back.Hour().Arrived; got != before+3 {
		t.Errorf("%d requests in the hour, want %d", got, before+3)
	}
	back.Add(20_000, Sample{Latency: none.Latency, Batches: none.Batches})
	if got := back.Hour().Arrived; got != 0 {
		t.Errorf("%d requests in the hour two hours later", got)
	}
}

func FuzzRestore(f *testing.F) {
	bounds, none := []float64{1}, Sample{Latency: make([]uint64, 2), Batches: make([]uint64, 1)}
	s := New(10_000, bounds, none)
	s.Add(10_001, Sample{Counts: Counts{Arrived: 1, InTime: 1}, Latency: []uint64{1, 0}, Batches: []uint64{1}})
	text := s.Saved()
	f.Add(text)
	f.Add(text[:len(text)/2])
	f.Add(append(text, 0))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, text []byte) {
		back, err := Restore(text, bounds, none)
		if err != nil {
			return
		}
		if at := back.at; at < 1<<50 {
			back.Add(at+100, Sample{Counts: Counts{Arrived: 1, InTime: 1}, Latency: []uint64{1, 0}, Batches: []uint64{1}})
		}
		back.Minute()
		back.Points(3600, 30)
	})
}
