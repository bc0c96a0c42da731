package control

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/coldstart"
	"github.com/faas-infer/faas-infer/profiler/correction"
	"github.com/faas-infer/faas-infer/provider/keeper"
	"github.com/faas-infer/faas-infer/provider/latency"
)

const (
	// correctionPeriod is the time between two writes of the corrections of models'
	// times: a crash loses no more than that. historyPeriod is the time between two writes
	// of the histories of idle times, which cover days.
	correctionPeriod = time.Minute
	historyPeriod    = 5 * time.Minute
	// correctionAge and historyAge are the ages from which a record with a change is written in any
	// case, if writes are bounded. A stored correction counts with 1/e of its weight after 15 minutes.
	correctionAge = 15 * time.Minute
	historyAge    = time.Hour
)

// saver stores corrections of times and histories of idle times for the next start.
type saver struct {
	mu        *sync.Mutex
	keeper    *keeper.Keeper[*instance]
	functions map[string]*function
	cold      coldstart.Policy
	// leads reports whether this replica starts and stops instances.
	leads   func() bool
	records latency.Records
	// saving: a write is in progress. corrections and histories are the times of the last
	// writes.
	saving                 bool
	corrections, histories time.Time
	// most is the maximum number of records that are written in a minute, 0 for no limit.
	most int
}

// due writes in the background what has changed since the last write, if a write is due.
func (s *saver) due(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.saving || !s.leads() {
		return
	}
	var states map[string]correction.State
	var histories map[string][]byte
	switch due := now.Sub(s.corrections) >= correctionPeriod; {
	case due && s.most > 0:
		states, histories = s.mostUrgent(now)
		s.corrections = now.Add(rand.N(correctionPeriod / 8)) // Not in step with other writers.
	case due:
		states = s.newCorrections()
	}
	if s.most == 0 && now.Sub(s.histories) >= historyPeriod {
		histories = s.newHistories()
	}
	if s.most == 0 && len(states) > 0 {
		s.corrections = now
	}
	if len(histories) > 0 {
		s.histories = now
	}
	if len(states) == 0 && len(histories) == 0 {
		return
	}
	s.saving = true
	s.keeper.Begin(func() {
		s.write(states, histories)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.saving = false
	})
}

// change is a value that has changed since it was stored.
type change struct {
	kept *kept
	// record is the name of its record. take puts it among the values to write.
	record string
	take   func()
}

// mostUrgent returns the changes to write in this minute and marks them as saved. The lock is held.
//
// A correction is written if it differs from the stored one by what matters to a restart, or if that
// is older than correctionAge. Of the changes the most are written whose records are the oldest, new
// records first; the others stay for the next minute. So 4,000 busy functions whose times have settled
// have 4,000/15 = 267 records to write each minute. At 60 of them a minute, each is written every 67
// minutes, and one that has just been deployed in the next minute.
func (s *saver) mostUrgent(now time.Time) (states map[string]correction.State, histories map[string][]byte) {
	states, histories = map[string]correction.State{}, map[string][]byte{}
	all := append(s.changedCorrections(now, states), s.changedHistories(now, histories)...)
	slices.SortFunc(all, func(a, b change) int {
		return cmp.Or(a.kept.at.Compare(b.kept.at), cmp.Compare(a.record, b.record))
	})
	for _, c := range all[:min(len(all), s.most)] {
		c.kept.at = now
		c.take()
	}
	return states, histories
}

func (s *saver) changedCorrections(now time.Time, into map[string]correction.State) (all []change) {
	if s.records.Corrections == nil {
		return nil
	}
	for name, fn := range s.functions {
		for _, a := range fn.artefacts {
			for _, p := range a.paces {
				if !p.unsaved {
					continue
				}
				state, record := p.times.State(), recordName(name, a.Name, p.kind)
				if now.Sub(p.kept.at) >= correctionAge || state.Differs(p.kept.outline) {
					all = append(all, change{&p.kept, record, func() { into[record], p.unsaved, p.kept.outline = state, false, state.Outline() }})
				}
			}
		}
	}
	return all
}

func (s *saver) changedHistories(now time.Time, into map[string][]byte) (all []change) {
	if s.records.Histories == nil {
		return nil
	}
	for name, fn := range s.functions {
		if fn.unwritten && now.Sub(fn.keptHistory.at) >= historyAge {
			all = append(all, change{&fn.keptHistory, name, func() {
				fn.unwritten = false
				if history := s.cold.Marshal(name); history != nil {
					into[name] = history
				}
			}})
		}
	}
	return all
}

// flush writes all that has changed since the last write. The lock is not held.
func (s *saver) flush() {
	s.mu.Lock()
	states, histories := s.newCorrections(), s.newHistories()
	s.mu.Unlock()
	s.write(states, histories)
}

func (s *saver) write(states map[string]correction.State, histories map[string][]byte) {
	has := func(record string) bool {
		name := functionOf(record)
		s.mu.Lock()
		defer s.mu.Unlock()
		_, ok := s.functions[name]
		return ok
	}
	s.records.Write(states, has)
	s.records.WriteHistories(histories, has)
}

// variantMark separates a function's name from a variant's in the name of a record.
// kindMark separates either from the type of the nodes.
const variantMark, kindMark = "/", " on "

// recordName is the name of the stored correction of a function's artefact on a type of nodes,
// "" where nodes do not differ.
func recordName(function, artefact, kind string) string {
	if artefact != cluster.Whole {
		function += variantMark + artefact
	}
	if kind != "" {
		function += kindMark + kind
	}
	return function
}

// functionOf returns the function of a record.
func functionOf(record string) string {
	record, _, _ = strings.Cut(record, kindMark) // First, since a type may have a variantMark.
	record, _, _ = strings.Cut(record, variantMark)
	return record
}

// newCorrections returns the unsaved corrections of models' times and marks them as saved.
// The lock is held.
func (s *saver) newCorrections() map[string]correction.State {
	states := map[string]correction.State{}
	if s.records.Corrections == nil {
		return states
	}
	for name, fn := range s.functions {
		for _, a := range fn.artefacts {
			for _, p := range a.paces {
				if p.unsaved {
					states[recordName(name, a.Name, p.kind)], p.unsaved = p.times.State(), false
				}
			}
		}
	}
	return states
}

// newHistories returns the unsaved histories of idle times and marks them as saved. The lock
// is held.
func (s *saver) newHistories() map[string][]byte {
	histories := map[string][]byte{}
	if s.records.Histories == nil {
		return histories
	}
	for name, fn := range s.functions {
		if !fn.unwritten {
			continue
		}
		fn.unwritten = false
		if history := s.cold.Marshal(name); history != nil {
			histories[name] = history
		}
	}
	return histories
}

// remember gives the cold-start policy a stored history. The lock is held.
func (s *saver) remember(function string, history []byte) {
	if history == nil {
		return
	}
	if err := s.cold.Restore(function, history); err != nil {
		s.records.Logger.Info().Str("function", function).Err(err).Msg("ignored the stored history of the function's idle times")
	}
}
