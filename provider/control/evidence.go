package control

import (
	"time"

	"github.com/faas-infer/faas-infer/profiler/correction"
)

// Corrections keeps, by functions' full names, what their instances have shown of
// their times.
type Corrections interface {
	Correction(function string) (correction.State, error)
	PutCorrections(states map[string]correction.State) error
	DeleteCorrection(function string) error
}

// savePeriod is the time between two writings of what was seen: a crash costs no
// more than that.
const savePeriod = time.Minute

// save writes in the background what was seen and learned since it was last
// written, if that is long enough ago.
func (c *Controller) save(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.saving || !c.leading() {
		return
	}
	var states map[string]correction.State
	var histories map[string][]byte
	if now.Sub(c.saved) >= savePeriod {
		states = c.unsaved()
	}
	if now.Sub(c.savedHistories) >= historyPeriod {
		histories = c.unsavedHistories()
	}
	if len(states) > 0 {
		c.saved = now
	}
	if len(histories) > 0 {
		c.savedHistories = now
	}
	if len(states) == 0 && len(histories) == 0 {
		return
	}
	c.saving = true
	c.begin(func() {
		c.write(states)
		c.writeHistories(histories)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.saving = false
	})
}

// unsaved takes what is to be written. The lock is held.
func (c *Controller) unsaved() map[string]correction.State {
	states := map[string]correction.State{}
	if c.options.Corrections == nil {
		return states
	}
	for name, fn := range c.functions {
		if fn.unsaved && fn.times != nil {
			states[name], fn.unsaved = fn.times.State(), false
		}
	}
	return states
}

// write writes what was seen. A function that was removed meanwhile leaves
// nothing behind.
func (c *Controller) write(states map[string]correction.State) {
	if len(states) == 0 {
		return
	}
	if err := c.options.Corrections.PutCorrections(states); err != nil {
		c.options.Logger.Error().Err(err).Msg("keep what instances have shown of their functions' times")
	}
	for name := range states {
		if !c.has(name) {
			c.unlearn(name)
		}
	}
}

// has reports whether a function is deployed.
func (c *Controller) has(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.functions[name]
	return ok
}

// unlearn deletes what was written of a function.
func (c *Controller) unlearn(name string) {
	if c.options.Corrections == nil {
		return
	}
	if err := c.options.Corrections.DeleteCorrection(name); err != nil {
		c.options.Logger.Error().Str("function", name).Err(err).Msg("forget what instances have shown of the function's times")
	}
}
