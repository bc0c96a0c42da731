package attainment

import (
	"maps"
	"slices"
	"time"
)

// Payload is the encoding of a request's tensors.
type Payload string

// The payloads: two of the Open Inference Protocol, and an image file.
const (
	Binary Payload = "binary"
	JSON   Payload = "json"
	Image  Payload = "image"
)

// Function is a function of a scenario: a model of the zoo or one that Python runs, and
// its load.
type Function struct {
	Model   string
	Payload Payload
	// Peak is its highest load, as a part of the capacity. That is the Poisson rate that
	// one instance with the whole core answers within the objective.
	Peak float64
}

func (f Function) name() string { return f.Model + "-" + string(f.Payload) }

// Beside is a disturbance on the machine during a scenario.
type Beside string

const (
	// nothing is no disturbance.
	nothing Beside = ""
	// deploying deploys another model after two seconds.
	deploying Beside = "deploying"
	// taken starts processes that compute on all cores after two seconds, for ten
	// seconds.
	taken Beside = "taken"
)

// Scenario is a load on functions that are deployed at its beginning.
type Scenario struct {
	Name      string
	Functions []Function
	// Shape returns the load at a time, as a part of the peak.
	Shape  func(at time.Duration) float64
	Length time.Duration
	// Changes are the times at which the load or the machine changes. Requests due
	// within grace after one do not count; they affect only the time to settle.
	Changes []time.Duration
	// Bursts are the times at which the load rises for a second. The time to settle
	// counts from them too, but all requests count.
	Bursts []time.Duration
	Beside Beside
	// KeepAlive is how long an instance without requests stays, 0 for the default.
	KeepAlive time.Duration
}

// grace is the time after a change in which requests do not count.
const grace = 2 * time.Second

// overloaded reports whether the peaks together exceed the capacity.
func (s Scenario) overloaded() bool {
	sum := 0.0
	for _, f := range s.Functions {
		sum += f.Peak
	}
	return sum > 1
}

// counts reports whether a request due at a time counts.
func (s Scenario) counts(at time.Duration) bool {
	return !slices.ContainsFunc(s.Changes, func(c time.Duration) bool { return at >= c && at < c+grace })
}

// usual is the length of a scenario, from its last change. late is the time of the second
// change.
const (
	usual = 10 * time.Second
	late  = 4 * time.Second
)

func steady(time.Duration) float64 { return 1 }

// fromZero is no load until late, then the peak.
func fromZero(at time.Duration) float64 {
	if at < late {
		return 0
	}
	return 1
}

// stepped is a quarter of the peak until late, then the peak.
func stepped(at time.Duration) float64 {
	if at < late {
		return 0.25
	}
	return 1
}

// ramp rises from a tenth of the peak to the peak in a minute.
func ramp(at time.Duration) float64 { return 0.1 + 0.9*at.Seconds()/60 }

// bursts is the peak for one second in ten, and a fifth of it otherwise.
func bursts(at time.Duration) float64 {
	if at%(10*time.Second) >= late && at%(10*time.Second) < late+time.Second {
		return 1
	}
	return 0.2
}

// burstTimes are the times in 20 s at which bursts begin.
var burstTimes = []time.Duration{late, late + 10*time.Second}

// onOff is the peak for four seconds and no load for six.
func onOff(at time.Duration) float64 {
	if at%(10*time.Second) < late {
		return 1
	}
	return 0
}

// three has three functions that share the machine.
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
		{Name: "bursts.dssm.json", Functions: one("dssm", JSON, 0.6), Shape: bursts, Length: 20 * time.Second, Changes: start, Bursts: burstTimes},
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
		"ramp": {Shape: ramp, Length: time.Minute, Changes: []time.Duration{0}}, "bursts": {Shape: bursts, Length: 20 * time.Second, Changes: []time.Duration{0}, Bursts: burstTimes},
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
