package provider

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/faas-infer/faas-infer/provider/decisions"
	"github.com/faas-infer/faas-infer/provider/history"
)

// This file keeps the histories and the decisions over a restart of the provider, so that pages which are open still
// show the last hour. The program that starts the server stores the text: see History.

// savedHistory is what the next run of the provider gets.
type savedHistory struct {
	Functions map[string]savedFunction `json:"functions"`
	Decisions []decisions.Decision     `json:"decisions"`
}

// savedFunction is the history of a function by its full name, until At. Created tells it from another with its name.
// Both are in seconds since 1970.
type savedFunction struct {
	Created int64  `json:"created"`
	At      int64  `json:"at"`
	Series  []byte `json:"series"`
}

// restoredHistories are the histories of an earlier run, of functions that are not back yet, by full name.
type restoredHistories map[string]savedFunction

// History is what a server shows of its past.
type History struct {
	watcher *watcher
	log     *decisions.Log
}

// HistoryOf returns the history of a server.
func HistoryOf(s *Server) History { return History{s.watcher, s.events.log} }

// Save returns the histories of the functions with requests in the last hour and the latest decisions as a text
// for [History.Restore], nil if nothing has changed since the call before. It takes milliseconds and keeps no
// request waiting.
func (h History) Save() []byte {
	w := h.watcher
	found, last := h.log.Since(0, "", "", 0)
	w.mu.Lock()
	if !w.unsaved && last == w.savedDecision {
		w.mu.Unlock()
		return nil
	}
	w.unsaved, w.savedDecision = false, last
	out := savedHistory{Functions: map[string]savedFunction{}, Decisions: found}
	for name, kept := range w.restored { // They are not back yet.
		if w.at-kept.At < int64(time.Hour/time.Second) {
			out.Functions[name] = kept
		}
	}
	for name, f := range w.functions {
		if f.series.Hour().Counts != (history.Counts{}) {
			out.Functions[name] = savedFunction{f.d.CreatedAt.Unix(), f.at, f.series.Saved()}
		}
	}
	w.mu.Unlock()
	text, _ := json.Marshal(out) // Strings and numbers cannot fail to marshal.
	return text
}

// Restore takes a text of [History.Save] of an earlier run. It comes before [Watch], and before anything is
// decided. Histories of functions that are not there any more are dropped.
func (h History) Restore(text []byte) error {
	var found savedHistory
	if err := json.Unmarshal(text, &found); err != nil {
		return fmt.Errorf("the history of the last run: %w", err)
	}
	h.log.Restore(found.Decisions)
	h.watcher.mu.Lock()
	defer h.watcher.mu.Unlock()
	h.watcher.restored = found.Functions
	return nil
}

// take removes and returns the history of a function, nil if there is none.
func (r restoredHistories) take(at int64, d *deployed, none history.Sample) *history.Series {
	found, ok := r[d.Name]
	delete(r, d.Name)
	if !ok || found.Created != d.CreatedAt.Unix() {
		return nil
	}
	series, err := history.Restore(found.Series, latencyBounds, none)
	if err != nil || !series.EndsBefore(at) {
		return nil // The figures begin anew, as without a history.
	}
	return series
}
