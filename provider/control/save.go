package control

import (
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/profiler/correction"
	"github.com/faas-infer/faas-infer/provider/latency"
)

const (
	// correctionPeriod is the time between two writes of the corrections of models'
	// times: a crash loses no more than that. historyPeriod is the time between two writes
	// of the histories of idle times, which cover days.
	correctionPeriod = time.Minute
	historyPeriod    = 5 * time.Minute
)

// saver stores corrections of times and histories of idle times for the next start.
type saver struct {
	controller *Controller
	records    latency.Records
	// saving: a write is in progress. corrections and histories are the times of the last
	// writes.
	saving                 bool
	corrections, histories time.Time
}

// due writes in the background what has changed since the last write, if a write is due.
func (s *saver) due(now time.Time) {
	s.controller.mu.Lock()
	defer s.controller.mu.Unlock()
	if s.saving || !s.controller.options.Replica.Leads() {
		return
	}
	var states map[string]correction.State
	var histories map[string][]byte
	if now.Sub(s.corrections) >= correctionPeriod {
		states = s.newCorrections()
	}
	if now.Sub(s.histories) >= historyPeriod {
		histories = s.newHistories()
	}
	if len(states) > 0 {
		s.corrections = now
	}
	if len(histories) > 0 {
		s.histories = now
	}
	if len(states) == 0 && len(histories) == 0 {
		return
	}
	s.saving = true
	s.controller.keeper.Begin(func() {
		s.write(states, histories)
		s.controller.mu.Lock()
		defer s.controller.mu.Unlock()
		s.saving = false
	})
}

// flush writes all that has changed since the last write. The lock is not held.
func (s *saver) flush() {
	s.controller.mu.Lock()
	states, histories := s.newCorrections(), s.newHistories()
	s.controller.mu.Unlock()
	s.write(states, histories)
}

func (s *saver) write(states map[string]correction.State, histories map[string][]byte) {
	has := func(record string) bool {
		name := functionOf(record)
		s.controller.mu.Lock()
		defer s.controller.mu.Unlock()
		_, ok := s.controller.functions[name]
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
	for name, fn := range s.controller.functions {
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
	for name, fn := range s.controller.functions {
		if !fn.unwritten {
			continue
		}
		fn.unwritten = false
		if history := s.controller.options.Cold.Marshal(name); history != nil {
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
	if err := s.controller.options.Cold.Restore(function, history); err != nil {
		s.controller.options.Logger.Info().Str("function", function).Err(err).Msg("ignored the stored history of the function's idle times")
	}
}
