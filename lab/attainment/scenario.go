package attainment

import (
	"maps"
	"slices"
	"time"
)

// Payload is how a request's tensors are written.
type Payload string

// The payloads: two of the Open Inference Protocol, and a photograph as it is.
const (
	Binary Payload = "binary"
	JSON   Payload = "json"
	Image  Payload = "image"
)

// Function is a function of a scenario: a model of the zoo or one that Python runs, and
// what it is asked.
type Function struct {
	Model   string
	Payload Payload
	// Peak is its highest load, as a part of the capacity: what one instance with the
	// whole core answers within the objective when requests come at random.
	Peak float64
}

func (f Function) name() string { return f.Model + "-" + string(f.Payload) }

// Beside is what else happens on the machine.
type Beside string

const (
	// nothing else; deploying another model from two seconds on; all cores taken by
	// processes that compute, for ten seconds from two seconds on.
	nothing   Beside = ""
	deploying Beside = "deploying"
	taken     Beside = "taken"
)

// Scenario is a load on functions that are deployed at its beginning.
type Scenario struct {
	Name      string
	Functions []Function
	// Shape is the load at a time, as a part of the peak.
	Shape  func(at time.Duration) float64
	Length time.Duration
	// Changes are when the load or the machine changes: what is due within grace of
	// one counts for how long it takes to settle only.
	Changes []time.Duration
	// Bursts are when the load leaps for a second. It takes time to settle from then on,
	// too, but all requests count.
	Bursts []time.Duration
	Beside Beside
	// KeepAlive is how long an instance without requests stays, 0 for the default.
	KeepAlive time.Duration
}

// grace is how long after a change functions need not be well.
const grace = 2 * time.Second

// overloaded reports whether more is asked than can be answered.
func (s Scenario) overloaded() bool {
	sum := 0.0
	for _, f := range s.Functions {
		sum += f.Peak
	}
	return sum > 1
}

// counts reports whether a request that is due at a time counts.
func (s Scenario) counts(at time.Duration) bool {
	return !slices.ContainsFunc(s.Changes, func(c time.Duration) bool { return at >= c && at < c+grace })
}

// usual is how long a load without a slow change is measured, late when it changes.
const (
	usual = 10 * time.Second
	late  = 4 * time.Second
)

func steady(time.Duration) float64 { return 1 }

// fromZero is no load, and from late on all of it.
func fromZero(at time.Duration) float64 {
	if at < late {
		return 0
	}
	return 1
}

// stepped is a quarter of the load, and from late on all of it.
func stepped(at time.Duration) float64 {
	if at < late {
		return 0.25
	}
	return 1
}

// ramp is a tenth of the load to all of it in a minute.
func ramp(at time.Duration) float64 { return 0.1 + 0.9*at.Seconds()/60 }

// bursts are a second of all the load in ten, a fifth of it otherwise.
func bursts(at time.Duration) float64 {
	if at%(10*time.Second) >= late && at%(10*time.Second) < late+time.Second {
		return 1
	}
	return 0.2
}

// leaps are when these begin in 20 s.
var leaps = []time.Duration{late, late + 10*time.Second}

// onOff is four seconds of load and six without.
func onOff(at time.Duration) float64 {
	if at%(10*time.Second) < late {
		return 1
	}
	return 0
}

// three functions share the machine.
var three = Scenario{Name: "three.binary", Functions: []Function{{"dssm", Binary, 0.2}, {"mnist", Binary, 0.2}, {"lstm-2365", Binary, 0.2}},
	Shape: steady, Length: usual, Changes: []time.Duration{0}}

// Covering has every model, payload, load and disturbance at least once.
func Covering() []Scenario {
	one := func(model string, p Payload, peak float64) []Function { return []Function{{model, p, peak}} }
	start := []time.Duration{0}
	twice := []time.Duration{0, late}
	return []Scenario{
		{Name: "steady_70.mnist.binary", Functions: one("mnist", Binary, 0.7), Shape: steady, Length: usual, Changes: start},
		{Name: "steady_70.lstm.binary", Functions: one("lstm-2365", Binary, 0.7), Shape: steady, Length: usual, Changes: start},
		{Name: "steady_30.bert_small.binary", Functions: one("bert-small", Binary, 0.3), Shape: steady, Length: usual, Changes: start},
		{Name: "steady_70.resnet.binary", Functions: one("resnet-50", Binary, 0.7), Shape: steady, Length: usual, Changes: start},
		{Name: "steady_70.resnet.image", Functions: one("resnet-50", Image, 0.7), Shape: steady, Length: usual, Changes: start},
		{Name: "from_0.dssm.binary", Functions: one("dssm", Binary, 0.6), Shape: fromZero, Length: late + usual, Changes: twice},
		{Name: "step_4.dssm.json", Functions: one("dssm", JSON, 0.6), Shape: stepped, Length: late + usual, Changes: twice},
		{Name: "step_4.mnist.json", Functions: one("mnist", JSON, 0.6), Shape: stepped, Length: late + usual, Changes: twice},
		{Name: "step_4.handler.json", Functions: one(handler, JSON, 0.6), Shape: stepped, Length: late + usual, Changes: twice},
		{Name: "step_4.keras.json", Functions: one(keras, JSON, 0.6), Shape: stepped, Length: late + usual, Changes: twice},
		{Name: "ramp.lstm.binary", Functions: one("lstm-2365", Binary, 0.7), Shape: ramp, Length: time.Minute, Changes: start},
		{Name: "bursts.dssm.json", Functions: one("dssm", JSON, 0.6), Shape: bursts, Length: 20 * time.Second, Changes: start, Bursts: leaps},
		{Name: "on_off.mnist.binary", Functions: one("mnist", Binary, 0.5), Shape: onOff, Length: 20 * time.Second, Changes: []time.Duration{0, 10 * time.Second}, KeepAlive: time.Second},
		{Name: "overload_2.resnet.binary", Functions: one("resnet-50", Binary, 2), Shape: steady, Length: usual, Changes: start},
		{Name: "overload_2.dssm.json", Functions: one("dssm", JSON, 2), Shape: steady, Length: usual, Changes: start},
		three,
		{Name: "deploying.lstm.binary", Functions: one("lstm-2365", Binary, 0.3), Shape: steady, Length: 14 * time.Second, Changes: start, Beside: deploying},
		{Name: "taken.dssm.binary", Functions: one("dssm", Binary, 0.3), Shape: steady, Length: 14 * time.Second, Changes: start, Beside: taken},
	}
}

// Full has every model with every payload under every load and disturbance.
func Full() []Scenario {
	loads := map[string]Scenario{
		"steady_30": {Shape: steady, Length: usual, Changes: []time.Duration{0}}, "steady_70": {Shape: steady, Length: usual, Changes: []time.Duration{0}},
		"from_0": {Shape: fromZero, Length: late + usual, Changes: []time.Duration{0, late}}, "step_4": {Shape: stepped, Length: late + usual, Changes: []time.Duration{0, late}},
		"ramp": {Shape: ramp, Length: time.Minute, Changes: []time.Duration{0}}, "bursts": {Shape: bursts, Length: 20 * time.Second, Changes: []time.Duration{0}, Bursts: leaps},
		"on_off":     {Shape: onOff, Length: 20 * time.Second, Changes: []time.Duration{0, 10 * time.Second}, KeepAlive: time.Second},
		"overload_2": {Shape: steady, Length: usual, Changes: []time.Duration{0}},
		"deploying":  {Shape: steady, Length: 14 * time.Second, Changes: []time.Duration{0}, Beside: deploying}, "taken": {Shape: steady, Length: 14 * time.Second, Changes: []time.Duration{0}, Beside: taken},
	}
	peaks := map[string]float64{"steady_30": 0.3, "overload_2": 2, "deploying": 0.3, "taken": 0.3}
	var all []Scenario
	for _, model := range []string{"mnist", "dssm", "lstm-2365", "resnet-50", "textcnn-69", "bert-small", handler, keras} {
		for _, payload := range []Payload{Binary, JSON, Image} {
			if payload == Image && model != "resnet-50" {
				continue
			}
			for _, load := range slices.Sorted(maps.Keys(loads)) {
				s, peak := loads[load], peaks[load]
				if peak == 0 {
					peak = 0.6
				}
				s.Name, s.Functions = load+"."+model+"."+string(payload), []Function{{model, payload, peak}}
				all = append(all, s)
			}
		}
	}
	return append(all, three)
}
