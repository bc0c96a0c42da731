package coldstart

import (
	"slices"
	"time"
)

// The views.
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
	// maxRecent is how many idle times patterns are looked for in, maxAlike how
	// many of those that followed the same pattern count.
	maxRecent = 512
	maxAlike  = 64
	// swap is the part of the views' weights that is dealt out evenly after
	// each idle time, so that a view that was wrong can come back.
	swap = 0.005
	// short is an idle time within a burst: they are all alike, and one more
	// changes little, so that predictions serve for up to stale.
	short = 30 * time.Second
	stale = 2 * time.Minute
)

// Model is what is known of one function's idle times. Times never go back.
type Model struct {
	all, late *tree
	day       forecastDay
	recent    []uint16 // steps, the latest last
	weights   [views]float32
	learned   int

	// The latest prediction, for an idle time that began at; since says after
	// how many more was learned.
	forecast Forecast
	mass     [views][]float32
	at       time.Time
	since    int
	valid    bool
}

// Forecast is a prediction. It holds until the model learns or predicts again.
type Forecast struct {
	// Mass is the probability that the idle time ends in each step; the last
	// is that it ends after all of them.
	Mass []float32
	// Version is another for every other prediction of the same model.
	Version uint64
}

var shortSteps = uint16(StepOf(short))

// scratch trees are filled anew for every prediction.
func newPattern() *tree { return newTree(200, 1e6) }

// NewModel is a model that knows nothing.
func NewModel() *Model {
	m := &Model{all: newTree(longMemory, 1e9), late: newTree(shortMemory, 1e4)}
	for i := range m.weights {
		m.weights[i] = 1.0 / views
		m.mass[i] = make([]float32, Steps+1)
	}
	m.forecast.Mass = make([]float32, Steps+1)
	return m
}

// Learned is how many idle times the model has been told of.
func (m *Model) Learned() int { return m.learned }

// Predict says how long an idle time that began at last will be.
func (m *Model) Predict(last time.Time) Forecast {
	if m.valid && (m.at.Equal(last) || m.still(last)) {
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

// still reports whether an earlier prediction serves: in a burst, where all
// that was learned since were short idle times, and few.
func (m *Model) still(last time.Time) bool {
	return m.since > 0 && m.since <= m.learned/64 && last.Sub(m.at) < stale
}

// alike fills mass with how long the idle times were that followed two like the
// last two. With few of them it is near what always holds.
func (m *Model) alike(mass []float32) {
	t, found := newPattern(), 0
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

// near reports whether two idle times are about the same: at most two steps
// apart, which is a tenth, or both within a burst.
func near(a, b uint16) bool {
	return a <= b+2 && b <= a+2 || a < shortSteps && b < shortSteps
}

// Learn takes in an idle time that began at last.
func (m *Model) Learn(last time.Time, idle time.Duration) {
	m.Predict(last)
	step := StepOf(idle)
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

// bursting reports whether the last three idle times were short, so that
// patterns are the same as before the last.
func (m *Model) bursting() bool {
	n := len(m.recent)
	return n >= 3 && max(m.recent[n-1], m.recent[n-2], m.recent[n-3]) < shortSteps
}

// weigh multiplies each view's weight by what it gave to what came (Bayes), and
// deals out a part evenly.
func (m *Model) weigh(step int) {
	sum := float32(0)
	for view := range m.weights {
		m.weights[view] *= max(m.mass[view][step], tiny)
		sum += m.weights[view]
	}
	for view := range m.weights {
		m.weights[view] = (1-swap)*m.weights[view]/sum + swap/views
	}
}
