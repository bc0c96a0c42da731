package control

import (
	"time"

	"github.com/faas-infer/faas-infer/profiler/correction"
	"github.com/faas-infer/faas-infer/provider/latency"
)

// savePeriod is the time between two writings of what was seen: a crash costs no
// more than that.
const savePeriod = time.Minute

func (c *Controller) records() latency.Records {
	return latency.Records{Corrections: c.options.Corrections, Histories: c.options.Histories, Logger: c.options.Logger}
}

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
	c.keeper.Begin(func() {
		c.records().Write(states, c.has)
		c.records().WriteHistories(histories, c.has)
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

// has reports whether a function is deployed.
func (c *Controller) has(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.functions[name]
	return ok
}

// historyPeriod is the time between two writings of histories. What a crash costs
// is a few idle times of days.
const historyPeriod = 5 * time.Minute

// unsavedHistories takes what has changed. The lock is held.
func (c *Controller) unsavedHistories() map[string][]byte {
	histories := map[string][]byte{}
	if c.options.Histories == nil {
		return histories
	}
	for name, fn := range c.functions {
		if !fn.unwritten {
			continue
		}
		fn.unwritten = false
		if history := c.options.Cold.Marshal(name); history != nil {
			histories[name] = history
		}
	}
	return histories
}

// remember gives the cold-start policy what was kept. The lock is held.
func (c *Controller) remember(function string, history []byte) {
	if history == nil {
		return
	}
	if err := c.options.Cold.Restore(function, history); err != nil {
		c.options.Logger.Info().Str("function", function).Err(err).Msg("what was learned of the function's idle times before does not count")
	}
}
