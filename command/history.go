package command

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/faas-infer/faas-infer/backoff"
	"github.com/faas-infer/faas-infer/provider"
)

// historyFile keeps the last hour over a restart, in the state directory.
const historyFile = "history.json"

// historyPause is the time between two writes of the history. A provider that is killed loses that much.
const historyPause = time.Minute

// restoreHistory reads the history of the last run. A damaged or missing one is none.
func (s *runningProvider) restoreHistory() {
	if s.parts.Several { // Each replica would tell the others its old decisions again.
		return
	}
	text, err := os.ReadFile(filepath.Join(s.flags.state, historyFile))
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		err = provider.HistoryOf(s.provider).Restore(text)
	}
	if err != nil {
		s.log.Warn().Err(err).Msg("the console's history begins anew")
	}
}

// keepHistory writes the history once a minute until ctx ends.
func (s *runningProvider) keepHistory(ctx context.Context) {
	for backoff.Wait(ctx, historyPause) {
		s.saveHistory()
	}
}

// saveHistory writes the history if it has changed.
func (s *runningProvider) saveHistory() {
	if s.parts.Several {
		return
	}
	text := provider.HistoryOf(s.provider).Save()
	if text == nil {
		return
	}
	if err := replaceFile(filepath.Join(s.flags.state, historyFile), text); err != nil {
		s.log.Warn().Err(err).Msg("the console's history was not written; a restart loses it")
	}
}
