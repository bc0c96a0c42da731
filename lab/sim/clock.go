package sim

import "time"

// epoch is the time at which simulations begin, for policies that take points in time. Any
// time but the zero time would do.
var epoch = time.Date(2022, time.February, 28, 0, 0, 0, 0, time.UTC)

// TimeAt converts a time since the beginning of a simulation to a point in time.
func TimeAt(after time.Duration) time.Time { return epoch.Add(after) }

// SinceStart converts a point in time to a time since the beginning of a simulation.
func SinceStart(t time.Time) time.Duration { return t.Sub(epoch) }
