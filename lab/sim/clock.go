package sim

import "time"

// epoch is when simulations begin, for policies that are told points in time. It
// has no meaning but that it is not the zero time.
var epoch = time.Date(2022, time.February, 28, 0, 0, 0, 0, time.UTC)

// TimeAt is the point in time that lies after so much of a simulation.
func TimeAt(after time.Duration) time.Time { return epoch.Add(after) }

// SinceStart is how much of a simulation lies before a point in time.
func SinceStart(t time.Time) time.Duration { return t.Sub(epoch) }
