package asyfunc

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/faas-infer/faas-infer/lab/arrivals"
	"github.com/faas-infer/faas-infer/papers/batch/arrival"
)

// twitter has the processes that BATCH's authors fitted to each hour of the day that AsyFunc
// replays.
//
//go:embed data/twitter.json
var twitter []byte

// Load is the requests of a run.
type Load struct {
	// Name says where they come from.
	Name string
	// Times are the requests' times, ascending. Length is the end.
	Times  []time.Duration
	Length time.Duration
}

// Mean is the mean rate in requests per second.
func (l *Load) Mean() float64 { return float64(len(l.Times)) / l.Length.Seconds() }

// Twitter draws so much of each hour of the day, one hour after the other.
func Twitter(each time.Duration, seed uint64) (*Load, error) {
	var day struct {
		Hours []struct {
			Hour   int
			D0, D1 [][]float64
		}
	}
	if err := json.Unmarshal(twitter, &day); err != nil {
		return nil, err
	}
	l := &Load{Name: fmt.Sprintf("%v of each of %d hours of the Twitter day", each, len(day.Hours))}
	for i, h := range day.Hours {
		m, err := arrival.New(h.D0, h.D1)
		if err != nil {
			return nil, fmt.Errorf("hour %d: %w", h.Hour, err)
		}
		s := m.Sampler(rand.New(rand.NewPCG(seed, uint64(i))))
		for at := s.Next(); at < each; at += s.Next() {
			l.Times = append(l.Times, l.Length+at)
		}
		l.Length += each
	}
	return l, nil
}

// Recorded reads a trace by its name or file: its times, or the counts of its first column. most
// bounds its length, 0 does not.
func Recorded(nameOrFile string, most time.Duration, seed uint64) (*Load, error) {
	t, err := arrivals.OpenTrace(nameOrFile)
	if err != nil {
		return nil, err
	}
	l, first := &Load{Name: "trace " + t.Name}, t.Columns[0]
	if first.Times != nil {
		l.Times = first.Times
		if n := len(l.Times); n > 0 {
			l.Length = l.Times[n-1] + time.Second
		}
	} else {
		p, err := arrivals.Counts(first.Counts, t.Step, 1, seed)
		if err != nil {
			return nil, fmt.Errorf("trace %s: %w", t.Name, err)
		}
		l.Length = t.Length()
		for at, ok := p.Next(); ok && (most == 0 || at < most); at, ok = p.Next() {
			l.Times = append(l.Times, at)
		}
	}
	if most > 0 && l.Length > most {
		l.Length = most
		for len(l.Times) > 0 && l.Times[len(l.Times)-1] >= most {
			l.Times = l.Times[:len(l.Times)-1]
		}
	}
	if len(l.Times) == 0 || l.Length <= 2*warmup {
		return nil, fmt.Errorf("trace %s: %d requests in %v; give one of more than %v", t.Name, len(l.Times), l.Length, 2*warmup)
	}
	return l, nil
}
