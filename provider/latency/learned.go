package latency

import (
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/correction"
)

// Corrections stores the corrections of functions' times under the names of records: a function's
// full name, or one that a function has for each of its variants and types of nodes.
type Corrections interface {
	// CorrectionNames lists the names of all records.
	CorrectionNames() ([]string, error)
	Correction(function string) (correction.State, error)
	PutCorrections(states map[string]correction.State) error
	DeleteCorrection(function string) error
}

// Histories stores the cold-start policy's histories of idle times, by the functions' full
// names.
type Histories interface {
	History(function string) ([]byte, error)
	PutHistories(histories map[string][]byte) error
	DeleteHistory(function string) error
}

// Records reads and writes corrections and histories. If a record cannot be read or written,
// only its content is lost.
type Records struct {
	// Corrections and Histories may be nil: then they are not stored.
	Corrections Corrections
	Histories   Histories
	Logger      zerolog.Logger
}

// Correction returns the profile's times, corrected by the stored correction if there is one.
func (s Records) Correction(name string, p *profiler.Profile, quantile float64) *correction.Correction {
	times, _ := s.CorrectionFrom(name, p, quantile, correction.State{})
	return times
}

// CorrectionFrom is Correction that begins with another correction if none is stored: that of the
// same model on other nodes. found reports whether one is stored.
func (s Records) CorrectionFrom(name string, p *profiler.Profile, quantile float64, other correction.State) (times *correction.Correction, found bool) {
	times = correction.New(p, quantile)
	if s.Corrections != nil {
		if kept, err := s.Corrections.Correction(name); err == nil {
			if err := times.Restore(kept, time.Now()); err == nil {
				return times, true
			}
			s.Logger.Debug().Str("function", name).Msg("ignored the stored correction of the function's times: it is of another profile")
		}
	}
	if other.Profile != "" {
		other.Profile = times.Of()
		_ = times.Restore(other, time.Now()) // Otherwise executions correct the times again.
	}
	return times, false
}

// History returns the stored history of a function's idle times, nil if there is none.
func (s Records) History(function string) []byte {
	if s.Histories == nil {
		return nil
	}
	kept, err := s.Histories.History(function)
	if err != nil {
		return nil // There is none, or it cannot be read. The policy learns it again.
	}
	return kept
}

// Write stores corrections. It deletes those of functions that are no longer there.
func (s Records) Write(states map[string]correction.State, has func(name string) bool) {
	if len(states) == 0 {
		return
	}
	if err := s.Corrections.PutCorrections(states); err != nil {
		s.Logger.Error().Err(err).Msg("could not store the corrections of functions' times")
	}
	for name := range states {
		if !has(name) {
			s.forgetCorrection(name)
		}
	}
}

// WriteHistories stores histories. It deletes those of functions that are no longer there.
func (s Records) WriteHistories(histories map[string][]byte, has func(name string) bool) {
	if len(histories) == 0 {
		return
	}
	if err := s.Histories.PutHistories(histories); err != nil {
		s.Logger.Error().Err(err).Msg("could not store the histories of functions' idle times")
	}
	for name := range histories {
		if !has(name) {
			s.forgetHistory(name)
		}
	}
}

// Forget deletes a function's history and all its corrections. of returns the function of a record:
// some may be of variants and types of nodes that this provider has never seen.
func (s Records) Forget(name string, of func(record string) string) {
	s.forgetHistory(name)
	if s.Corrections == nil {
		return
	}
	all, err := s.Corrections.CorrectionNames()
	if err != nil {
		s.Logger.Error().Str("function", name).Err(err).Msg("could not list the corrections of the function's times")
	}
	for _, record := range all {
		if of(record) == name {
			s.forgetCorrection(record)
		}
	}
}

// forgetCorrection deletes a correction, if there is one.
func (s Records) forgetCorrection(name string) {
	if err := s.Corrections.DeleteCorrection(name); err != nil {
		s.Logger.Error().Str("function", name).Err(err).Msg("could not delete the correction of the function's times")
	}
}

// forgetHistory deletes a function's history.
func (s Records) forgetHistory(name string) {
	if s.Histories == nil {
		return
	}
	if err := s.Histories.DeleteHistory(name); err != nil {
		s.Logger.Error().Str("function", name).Err(err).Msg("could not delete the history of the function's idle times")
	}
}
