package control

import "time"

// Histories keeps, by functions' full names, what the cold-start policy knows of
// their idle times.
type Histories interface {
	History(function string) ([]byte, error)
	PutHistories(histories map[string][]byte) error
	DeleteHistory(function string) error
}

// historyPeriod is the time between two writings of histories. What a crash costs
// is a few idle times of days.
const historyPeriod = 5 * time.Minute

// history reads what an earlier provider has learned of a function's idle times;
// nil if nothing is kept.
func (c *Controller) history(function string) []byte {
	if c.options.Histories == nil {
		return nil
	}
	kept, err := c.options.Histories.History(function)
	if err != nil {
		return nil // There is none, or it cannot be read; it comes again.
	}
	return kept
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

// writeHistories writes what was learned. A function that was removed meanwhile
// leaves nothing behind.
func (c *Controller) writeHistories(histories map[string][]byte) {
	if len(histories) == 0 {
		return
	}
	if err := c.options.Histories.PutHistories(histories); err != nil {
		c.options.Logger.Error().Err(err).Msg("keep what was learned of functions' idle times")
	}
	for name := range histories {
		if !c.has(name) {
			c.forgetHistory(name)
		}
	}
}

// forgetHistory deletes what was written of a function.
func (c *Controller) forgetHistory(name string) {
	if c.options.Histories == nil {
		return
	}
	if err := c.options.Histories.DeleteHistory(name); err != nil {
		c.options.Logger.Error().Str("function", name).Err(err).Msg("forget what was learned of the function's idle times")
	}
}
