package coldstart

import (
	"math"
	"sort"
	"time"
)

// Idle times are divided into steps. Up to stepDay a step's width is in proportion to
// its start, but at most stepWidth, so the steps resolve times of the day. Beyond
// stepDay it is in proportion again.
const (
	stepFirst = time.Second
	stepRatio = 1.05
	stepWidth = 5 * time.Minute
	stepDay   = 26 * time.Hour
	stepLast  = 7 * 24 * time.Hour
)

// edges has the ends of the steps: step i is from edges[i] to edges[i+1].
var edges = makeEdges()

// Steps is the number of steps. Idle times beyond the last step count as step number
// Steps, which has no end.
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

// edge is where step i begins and step i-1 ends; i is from 0 to Steps.
func edge(i int) time.Duration { return edges[i] }

// stepOf returns the step of an idle time.
func stepOf(idle time.Duration) int {
	if idle < stepFirst {
		return 0
	}
	return sort.Search(Steps, func(i int) bool { return edges[i+1] > idle })
}

// logUniform is the distribution of idle times without any knowledge: they are as likely
// to last one to two minutes as one to two hours. The first step and the one beyond the
// last each have the mass of a factor of e.
var logUniform = func() []float64 {
	mass := make([]float64, Steps+1)
	total := math.Log(float64(edges[Steps])/float64(stepFirst)) + 2
	for i := 1; i < Steps; i++ {
		mass[i] = math.Log(float64(edges[i+1])/float64(edges[i])) / total
	}
	mass[0], mass[Steps] = 1/total, 1/total
	return mass
}()
