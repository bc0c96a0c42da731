package control

import (
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/profiler/correction"
	"github.com/faas-infer/faas-infer/provider/latency"
)

const (
	// correctionPeriod is the time between two writings of what was seen of models'
	// times: a crash costs no more than that. historyPeriod is that of what was learned
	// of idle times, where it costs a few of days.
	correctionPeriod = time.Minute
	historyPeriod    = 5 * time.Minute
)

// saver writes what a controller has seen and learned, so that a restart begins with it.
type saver struct {
	of      *Controller
	records latency.Records
	// saving: something is being written; corrections and histories are when they last
	// were.
	saving                 bool
	corrections, histories time.Time
}

// due writes in the background what is new since it was last written, if that is long
// enough ago.
func (s *saver) due(now time.Time) {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	if s.saving || !s.of.options.Replica.Leads() {
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
	s.of.keeper.Begin(func() {
		s.write(states, histories)
		s.of.mu.Lock()
		defer s.of.mu.Unlock()
		s.saving = false
	})
}

// rest writes all that is new. The lock is not held.
func (s *saver) rest() {
	s.of.mu.Lock()
	states, histories := s.newCorrections(), s.newHistories()
	s.of.mu.Unlock()
	s.write(states, histories)
}

func (s *saver) write(states map[string]correction.State, histories map[string][]byte) {
	has := func(name string) bool {
		s.of.mu.Lock()
		defer s.of.mu.Unlock()
		_, ok := s.of.functions[name]
		return ok
	}
	s.records.Write(states, has)
	s.records.WriteHistories(histories, has)
}

// newCorrections takes what is to be written of models' times: those of whole models. The
// lock is held.
func (s *saver) newCorrections() map[string]correction.State {
	states := map[string]correction.State{}
	if s.records.Corrections == nil {
		return states
	}
	for name, fn := range s.of.functions {
		if a := fn.artefact(cluster.Whole); a != nil && a.unsaved {
			states[name], a.unsaved = a.times.State(), false
		}
	}
	return states
}

// newHistories takes what is to be written of idle times. The lock is held.
func (s *saver) newHistories() map[string][]byte {
	histories := map[string][]byte{}
	if s.records.Histories == nil {
		return histories
	}
	for name, fn := range s.of.functions {
		if !fn.unwritten {
			continue
		}
		fn.unwritten = false
		if history := s.of.options.Cold.Marshal(name); history != nil {
			histories[name] = history
		}
	}
	return histories
}

// remember gives the cold-start policy what was kept. The lock is held.
func (s *saver) remember(function string, history []byte) {
	if history == nil {
		return
	}
	if err := s.of.options.Cold.Restore(function, history); err != nil {
		s.of.options.Logger.Info().Str("function", function).Err(err).Msg("what was learned of the function's idle times before does not count")
	}
}
