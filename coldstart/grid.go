package coldstart

import (
	"math"
	"sort"
	"time"
)

// Idle times are divided into steps: first in proportion to their length, then
// of stepWidth each for more than a day, so that what happens at a time of the
// day is seen, then in proportion again.
const (
	stepFirst = time.Second
	stepRatio = 1.05
	stepWidth = 5 * time.Minute
	stepDay   = 26 * time.Hour
	stepLast  = 7 * 24 * time.Hour
)

// edges are where steps begin and end: step i is from edges[i] to edges[i+1].
var edges = makeEdges()

// Steps is how many steps there are. Idle times that are longer than the last of
// them are counted as a step numbered Steps, which has no end.
var Steps = len(edges) - 1

func makeEdges() []time.Duration {
	at := []time.Duration{0, stepFirst}
	for {
		last := at[len(at)-1]
		next := time.Duration(float64(last) * stepRatio)
		if last < stepDay {
			next = min(next, last+stepWidth)
		}
		if next > stepLast {
			return at
		}
		at = append(at, next)
	}
}

// Edge is where step i begins and step i-1 ends; i is from 0 to Steps.
func Edge(i int) time.Duration { return edges[i] }

// StepOf is the step in which an idle time lies.
func StepOf(idle time.Duration) int {
	if idle < stepFirst {
		return 0
	}
	return sort.Search(Steps, func(i int) bool { return edges[i+1] > idle })
}

// logUniform is the distribution of idle times of which nothing is known: as
// likely between one and two minutes as between one and two hours. Those
// below the first step and beyond the last count as a factor of e each.
var logUniform = func() []float64 {
	mass := make([]float64, Steps+1)
	total := math.Log(float64(edges[Steps])/float64(stepFirst)) + 2
	for i := 1; i < Steps; i++ {
		mass[i] = math.Log(float64(edges[i+1])/float64(edges[i])) / total
	}
	mass[0], mass[Steps] = 1/total, 1/total
	return mass
}()
