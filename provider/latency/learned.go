package latency

import (
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/correction"
)

// Corrections keeps, by functions' full names, what their instances have shown of
// their times.
type Corrections interface {
	Correction(function string) (correction.State, error)
	PutCorrections(states map[string]correction.State) error
	DeleteCorrection(function string) error
}

// Histories keeps, by functions' full names, what the cold-start policy knows of
// their idle times.
type Histories interface {
	History(function string) ([]byte, error)
	PutHistories(histories map[string][]byte) error
	DeleteHistory(function string) error
}

// Records keeps both. If something cannot be read or written, only its content is lost.
type Records struct {
	// Corrections and Histories may be nil: nothing is kept then.
	Corrections Corrections
	Histories   Histories
	Logger      zerolog.Logger
}

// Correction corrects the profile's times by what an earlier provider has
// seen, if anything.
func (s Records) Correction(name string, p *profiler.Profile, quantile float64) *correction.Correction {
	times := correction.New(p, quantile)
	if s.Corrections == nil {
		return times
	}
	kept, err := s.Corrections.Correction(name)
	if err != nil {
		return times // There is none, or it cannot be read; it comes again.
	}
	if err := times.Restore(kept, time.Now()); err != nil {
		s.Logger.Debug().Str("function", name).Err(err).Msg("what was seen of the function's times before does not count")
	}
	return times
}

// History reads what an earlier provider has learned of a function's idle times;
// nil if nothing is kept.
func (s Records) History(function string) []byte {
	if s.Histories == nil {
		return nil
	}
	kept, err := s.Histories.History(function)
	if err != nil {
		return nil // There is none, or it cannot be read; it comes again.
	}
	return kept
}

// Write writes what was seen. Functions that are not there any more leave
// nothing behind.
func (s Records) Write(states map[string]correction.State, has func(name string) bool) {
	if len(states) == 0 {
		return
	}
	if err := s.Corrections.PutCorrections(states); err != nil {
		s.Logger.Error().Err(err).Msg("keep what instances have shown of their functions' times")
	}
	for name := range states {
		if !has(name) {
			s.unlearn(name)
		}
	}
}

// WriteHistories writes what was learned. Functions that are not there any more
// leave nothing behind.
func (s Records) WriteHistories(histories map[string][]byte, has func(name string) bool) {
	if len(histories) == 0 {
		return
	}
	if err := s.Histories.PutHistories(histories); err != nil {
		s.Logger.Error().Err(err).Msg("keep what was learned of functions' idle times")
	}
	for name := range histories {
		if !has(name) {
			s.forgetHistory(name)
		}
	}
}

// Forget deletes what was written of a function.
func (s Records) Forget(name string) {
	s.unlearn(name)
	s.forgetHistory(name)
}

// unlearn deletes what was written of a function.
func (s Records) unlearn(name string) {
	if s.Corrections == nil {
		return
	}
	if err := s.Corrections.DeleteCorrection(name); err != nil {
		s.Logger.Error().Str("function", name).Err(err).Msg("forget what instances have shown of the function's times")
	}
}

// forgetHistory deletes what was written of a function.
func (s Records) forgetHistory(name string) {
	if s.Histories == nil {
		return
	}
	if err := s.Histories.DeleteHistory(name); err != nil {
		s.Logger.Error().Str("function", name).Err(err).Msg("forget what was learned of the function's idle times")
	}
}
