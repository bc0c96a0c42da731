package coldstart

import (
	"slices"
	"time"
)

// A model mixes the predictions of these views.
const (
	always = iota
	lately
	pattern
	daily
	views
)

const (
	longMemory  = 2000 // samples
	shortMemory = 24
	// maxRecent is the number of idle times that are searched for patterns. maxAlike
	// bounds how many idle times after the same pattern count.
	maxRecent = 512
	maxAlike  = 64
	// evenPart is the part of the views' weights that is shared out evenly after each
	// idle time, so a view that was wrong can recover.
	evenPart = 0.005
	// short bounds an idle time within a burst. These are all alike, and one more
	// changes little, so a prediction stays valid for up to stale.
	short = 30 * time.Second
	stale = 2 * time.Minute
)

// Model predicts one function's idle times from those before. Times never go back.
type Model struct {
	all, late *tree
	day       forecastDay
	recent    []uint16 // steps, the latest last
	weights   [views]float32
	learned   int

	// forecast is the latest prediction, for an idle time that began at. since counts
	// the idle times learned after it.
	forecast Forecast
	mass     [views][]float32
	at       time.Time
	since    int
	valid    bool
}

// Forecast is a prediction. It holds until the model learns or predicts again.
type Forecast struct {
	// Mass is the probability that the idle time ends in each step. The last entry is
	// the probability that it ends after all steps.
	Mass []float32
	// Version differs between different predictions of the same model.
	Version uint64
}

var shortSteps = uint16(stepOf(short))

// newModel returns a model that has learned nothing.
func newModel() *Model {
	m := &Model{all: newTree(longMemory, 1e9), late: newTree(shortMemory, 1e4)}
	for i := range m.weights {
		m.weights[i] = 1.0 / views
		m.mass[i] = make([]float32, Steps+1)
	}
	m.forecast.Mass = make([]float32, Steps+1)
	return m
}

// Learned is the number of idle times that the model has learned from.
func (m *Model) Learned() int { return m.learned }

// Predict forecasts the length of an idle time that began at last.
func (m *Model) Predict(last time.Time) Forecast {
	if m.valid && (m.at.Equal(last) || m.reusable(last)) {
		return m.forecast
	}
	m.all.masses(m.mass[always])
	m.late.masses(m.mass[lately])
	m.alike(m.mass[pattern])
	m.day.masses(m.mass[daily], m.mass[always], last)
	mixed := m.forecast.Mass
	clear(mixed)
	for view, weight := range m.weights {
		for i, mass := range m.mass[view] {
			mixed[i] += weight * mass
		}
	}
	normalise(mixed)
	m.at, m.since, m.valid = last, 0, true
	m.forecast.Version++
	return m.forecast
}

// reusable reports whether the earlier prediction is still good enough. It is in a
// burst, if the model learned only a few short idle times since.
func (m *Model) reusable(last time.Time) bool {
	return m.since > 0 && m.since <= m.learned/64 && last.Sub(m.at) < stale
}

// alike fills mass with the distribution of the idle times that followed two like the
// last two. The fewer there are, the closer it is to that of all idle times.
func (m *Model) alike(mass []float32) {
	t, found := newTree(200, 1e6), 0
	n := len(m.recent)
	var after [maxAlike]uint16
	for i := n - 1; i >= 2 && found < maxAlike; i-- {
		if near(m.recent[i-1], m.recent[n-1]) && near(m.recent[i-2], m.recent[n-2]) {
			after[found] = m.recent[i]
			found++
		}
	}
	for i := found - 1; i >= 0; i-- { // The oldest first: trees forget.
		t.learn(int(after[i]))
	}
	t.masses(mass)
	weight := float32(found) / float32(found+1)
	for i := range mass {
		mass[i] = weight*mass[i] + (1-weight)*m.mass[always][i]
	}
}

// near reports whether two idle times are about equal: at most two steps (a tenth)
// apart, or both within a burst.
func near(a, b uint16) bool {
	return a <= b+2 && b <= a+2 || a < shortSteps && b < shortSteps
}

// Learn updates the model with an idle time that began at last.
func (m *Model) Learn(last time.Time, idle time.Duration) {
	m.Predict(last)
	step := stepOf(idle)
	m.weigh(step)
	m.day.learn(m.mass[always], last, idle)
	m.all.learn(step)
	m.late.learn(step)
	if len(m.recent) == maxRecent {
		m.recent = slices.Delete(m.recent, 0, maxRecent/4)
	}
	m.recent = append(m.recent, uint16(step))
	m.learned++
	m.since++
	m.valid = m.bursting()
}

// bursting reports whether the last three idle times were short. The patterns are then
// the same as before the last one.
func (m *Model) bursting() bool {
	n := len(m.recent)
	return n >= 3 && max(m.recent[n-1], m.recent[n-2], m.recent[n-3]) < shortSteps
}

// weigh multiplies each view's weight by the probability that it gave to the step that
// came (Bayes). It then shares out evenPart of the weights evenly.
func (m *Model) weigh(step int) {
	sum := float32(0)
	for view := range m.weights {
		m.weights[view] *= max(m.mass[view][step], tiny)
		sum += m.weights[view]
	}
	for view := range m.weights {
		m.weights[view] = (1-evenPart)*m.weights[view]/sum + evenPart/views
	}
}
