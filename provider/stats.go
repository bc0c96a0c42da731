package provider

import (
	"cmp"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/history"
	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/provider/web"
)

type statsName struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
}

// functionStats is one function in these answers. Times are in milliseconds.
type functionStats struct {
	statsName
	Kind       string           `json:"kind"`
	Image      string           `json:"image"`
	SLO        float64          `json:"slo_ms"`
	Percentile float64          `json:"percentile"`
	State      history.State    `json:"state"`
	Sentence   string           `json:"sentence"`
	Remedy     *statsRemedy     `json:"remedy"`
	Revision   statsRevision    `json:"revision"`
	Promise    *statsPromise    `json:"promise"`
	Minute     statsWindow      `json:"minute"`
	Hour       statsWindow      `json:"hour"`
	Load       float64          `json:"load_per_s"`
	Carries    float64          `json:"carries_per_s"`
	Waiting    int              `json:"waiting"`
	Cost       int              `json:"cost_millicores"`
	CostGPU    int              `json:"cost_gpu_pct"`
	Memory     int64            `json:"memory_bytes"`
	Replicas   uint64           `json:"replicas"`
	Available  uint64           `json:"available_replicas"`
	Instances  []statsInstance  `json:"instances"`
	Latency    *statsBounds     `json:"latency_ms,omitempty"`
	Batches    *statsSizes      `json:"batches,omitempty"`
	Predicted  []statsPredicted `json:"predicted,omitempty"`
	Inputs     []statsTensor    `json:"inputs,omitempty"`
	Outputs    []statsTensor    `json:"outputs,omitempty"`
	Series     *statsSeries     `json:"series,omitempty"`
}

type statsRemedy struct {
	Label       string  `json:"label"`
	SLO         float64 `json:"slo_ms,omitempty"`
	ReplicasMax int     `json:"replicas_max,omitempty"`
}

// statsPromise is how well the objective was kept since it was stated. From and To bound the part with a confidence
// of 95 %.
type statsPromise struct {
	Since    int64   `json:"since"`
	Requests uint64  `json:"requests"`
	Kept     float64 `json:"kept_pct"`
	From     float64 `json:"from_pct"`
	To       float64 `json:"to_pct"`
	Sentence string  `json:"sentence"`
}

// kept is nil for a function that has promised or answered nothing.
func (f *watchedFunction) kept() *statsPromise {
	in := &f.d.Inference
	k, ok := f.promise.Kept()
	if !ok || !in.IsInference {
		return nil
	}
	said := k.Sentence(in.Percentile, in.SLO)
	return &statsPromise{k.Since, k.Requests, rounded(k.Percent), rounded(k.From), rounded(k.To), said}
}

type statsRevision struct {
	Asked   string `json:"asked"`
	Serving string `json:"serving"`
}

type statsWindow struct {
	Arrived    uint64   `json:"arrived"`
	InTime     uint64   `json:"in_time"`
	Late       uint64   `json:"late"`
	Refused    uint64   `json:"refused"`
	Failed     uint64   `json:"failed"`
	Rate       float64  `json:"rate_per_s"`
	Attainment *float64 `json:"attainment_pct"`
	P50        *float64 `json:"p50_ms"`
	P99        *float64 `json:"p99_ms"`
}

// statsInstance is a block of like instances, or one of them, which has an ID.
type statsInstance struct {
	Batch     int      `json:"batch"`
	CPU       int      `json:"cpu_millicores"`
	GPU       int      `json:"gpu_pct"`
	Count     int      `json:"count"`
	Ready     int      `json:"ready"`
	Parked    int      `json:"parked"`
	Node      string   `json:"node"`
	ID        string   `json:"id,omitempty"`
	Variant   string   `json:"variant,omitempty"`
	State     string   `json:"state,omitempty"`
	Carries   float64  `json:"carries_per_s,omitempty"`
	MeanBatch float64  `json:"mean_batch,omitempty"`
	Predicted float64  `json:"predicted_ms,omitempty"`
	Seen      *float64 `json:"seen_ms,omitempty"`
}

type statsBounds struct {
	Bounds []float64 `json:"bounds"`
	Counts []uint64  `json:"counts"`
}

type statsSizes struct {
	Sizes  []float64 `json:"sizes"`
	Counts []uint64  `json:"counts"`
}

// statsPredicted compares the executions of instances with one config with what was predicted for batches of their sizes.
// MeanBatch is the mean of these. Without executions, it is a full batch.
type statsPredicted struct {
	Batch      int      `json:"batch"`
	CPU        int      `json:"cpu_millicores"`
	GPU        int      `json:"gpu_pct"`
	MeanBatch  float64  `json:"mean_batch"`
	Predicted  float64  `json:"predicted_ms"`
	Seen       *float64 `json:"seen_ms"`
	Executions uint64   `json:"executions"`
}

// statsTensor is an input or an output of a model, as the Open Inference Protocol describes it.
type statsTensor struct {
	Name  string  `json:"name"`
	Type  string  `json:"type"`
	Shape []int64 `json:"shape"`
}

type statsSeries struct {
	At        []int64    `json:"at"`
	Arrived   []uint64   `json:"arrived"`
	InTime    []uint64   `json:"in_time"`
	Late      []uint64   `json:"late"`
	Refused   []uint64   `json:"refused"`
	Failed    []uint64   `json:"failed"`
	P50       []*float64 `json:"p50_ms"`
	P99       []*float64 `json:"p99_ms"`
	Instances []int      `json:"instances"`
	Cost      []int      `json:"cost_millicores"`
	Waiting   []int      `json:"waiting"`
	Load      []float64  `json:"load_per_s"`
	Carries   []float64  `json:"carries_per_s"`
}

// rounded leaves out digits that say nothing: three behind the point, of what is not a number nothing.
func rounded(x float64) float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	return math.Round(x*1000) / 1000
}

// known is a number for JSON, null if it is none.
func known(x float64) *float64 {
	if math.IsNaN(x) {
		return nil
	}
	x = rounded(x)
	return &x
}

func inMilliseconds(d time.Duration) float64 { return rounded(float64(d) / float64(time.Millisecond)) }

// seenTime is null for an instance that has executed nothing.
func seenTime(d time.Duration) *float64 {
	if d == 0 {
		return nil
	}
	return known(inMilliseconds(d))
}

func window(s history.Summary) statsWindow {
	w := statsWindow{
		Arrived: s.Arrived, InTime: s.InTime, Late: s.Late, Refused: s.Refused, Failed: s.Failed,
		Rate: rounded(s.Rate()), P50: known(s.P50), P99: known(s.P99),
	}
	if percent, ok := s.Attainment(); ok {
		w.Attainment = known(percent)
	}
	return w
}

// stats returns a function as /system/stats shows it, with all details if whole is set.
func (w *watchedFunction) stats(whole bool) functionStats {
	d, in := w.d, &w.d.Inference
	minute, hour := w.series.Minute(), w.series.Hour()
	f := functionStats{
		statsName: w.name(), Kind: "program", Image: d.Deployment.Image, SLO: inMilliseconds(in.SLO), Percentile: in.Percentile,
		Revision: statsRevision{Asked: strconv.FormatUint(d.Revision, 10)}, Minute: window(minute), Hour: window(hour),
		Load: rounded(w.load(minute)), Carries: rounded(w.state.Carries), Waiting: w.state.Waiting,
		Replicas: w.state.Replicas, Available: w.state.AvailableReplicas,
	}
	if f.Promise = w.kept(); in.IsInference {
		f.Kind = "model"
	}
	if w.state.Revision > 0 {
		f.Revision.Serving = strconv.FormatUint(w.state.Revision, 10)
	}
	held := w.holds()
	f.Cost, f.CostGPU, f.Memory = held.CPU, held.GPU, held.Memory
	v := w.memory.Judge(w.at, w.situation(minute))
	f.State, f.Sentence = v.State, v.Sentence
	if r := v.Remedy; r != nil {
		f.Remedy = &statsRemedy{Label: r.Label, SLO: inMilliseconds(r.Objective), ReplicasMax: r.Max}
	}
	if !whole {
		f.Instances = blocks(w.state.Instances)
		return f
	}
	f.Instances = each(w.state.Instances)
	latency, batches := w.series.Distributions()
	f.Latency = &statsBounds{latencyBounds, latency}
	if in.IsInference {
		f.Batches = &statsSizes{batchBounds, batches}
		f.Predicted = predicted(w.state.Instances)
		f.Inputs, f.Outputs = w.model.inputs, w.model.outputs
	}
	return f
}

var latencyBounds, batchBounds = metrics.LatencyBounds(), metrics.BatchBounds()

func (w *watchedFunction) name() statsName {
	return statsName{w.d.Deployment.Service, w.d.Deployment.Namespace}
}

// load is the controller's measured load. Of an ordinary function there is none: it is that of the last minute.
func (w *watchedFunction) load(minute history.Summary) float64 {
	if w.d.Inference.IsInference {
		return w.state.Load
	}
	return minute.Rate()
}

// holds is what the function's instances hold. What those of a node map counts once.
func (w *watchedFunction) holds() cluster.Resources {
	var sum cluster.Sum
	for i := range w.state.Instances {
		sum.Hold(w.state.Instances[i].Node, w.state.Instances[i].Holds)
	}
	return sum.Resources
}

// recent is how many seconds show whether misses go on.
const recent = 5

// situation is what the rules for sentences need.
func (w *watchedFunction) situation(minute history.Summary) history.Situation {
	in := &w.d.Inference
	s := history.Situation{
		Objective: in.SLO, Percentile: in.Percentile, Minute: minute.Counts, Load: w.load(minute), Carries: w.state.Carries, Waiting: w.state.Waiting,
		Max: in.MaxReplicas, Lack: lacks[w.state.Lack], Least: w.state.Least, Roomy: w.roomy, Problem: w.state.Problem, Hopeless: w.state.Hopeless,
		Slight: w.state.Slight, Progress: w.state.Progress, WrongCode: w.reading.WrongCode, Cold: w.coldAt > 0 && w.at-w.coldAt < 60,
	}
	if w.changedAt > 0 && w.at-w.changedAt < 60 { // What was answered before says nothing of the present objective.
		s.Minute = w.series.Since(w.changedAt)
		s.Minute.Arrived = minute.Arrived
	} else if !math.IsNaN(minute.P99) {
		s.Seen = time.Duration(minute.P99 * float64(time.Millisecond))
	}
	s.Recent = w.series.Since(max(w.at-recent, w.changedAt))
	var seen, planned float64
	for i := range w.state.Instances {
		switch x := &w.state.Instances[i]; x.shown() {
		case instanceReady:
			s.Ready++
			if x.Seen > 0 {
				seen, planned = seen+float64(x.Seen), planned+float64(x.Planned)
			}
		case instanceParked:
			s.Parked++
		case instanceStopping:
			continue
		}
		s.Instances++
	}
	if planned > 0 { // What corrections have learnt is no reason to miss the objective.
		s.Slower = seen / planned
	}
	return s
}

var lacks = map[Lack]history.Lack{LackRoom: history.NoRoom, LackNode: history.NoNode, LackLimit: history.AtLimit, LackSpeed: history.TooSlow}

// The states of instances.
const (
	instanceStarting = "starting"
	instanceReady    = "ready"
	instanceParked   = "parked"
	instanceStopping = "stopping"
)

// shown is the state of an instance in words.
func (x *WatchedInstance) shown() string {
	switch {
	case x.Leaving || x.State == cluster.Stopping || x.State == cluster.Exited:
		return instanceStopping
	case x.Parked:
		return instanceParked
	case x.State == cluster.Ready:
		return instanceReady
	}
	return instanceStarting
}

func instanceOf(x *WatchedInstance) statsInstance {
	return statsInstance{Batch: x.Config.Batch, CPU: x.Config.CPU, GPU: x.Config.GPU, Count: 1}
}

func (s *statsInstance) count(state string) {
	switch state {
	case instanceReady:
		s.Ready++
	case instanceParked:
		s.Parked++
	}
}

// blocks groups instances with one config, the largest first.
func blocks(all []WatchedInstance) []statsInstance {
	out, at := []statsInstance{}, map[statsInstance]int{}
	for i := range all {
		state := all[i].shown()
		if state == instanceStopping {
			continue
		}
		key := instanceOf(&all[i])
		j, ok := at[key]
		if !ok {
			j, at[key] = len(out), len(out)
			out = append(out, key)
			out[j].Count = 0
		}
		out[j].Count++
		out[j].count(state)
	}
	slices.SortFunc(out, func(a, b statsInstance) int {
		return cmp.Or(b.GPU-a.GPU, b.CPU-a.CPU, b.Batch-a.Batch)
	})
	return out
}

// each lists every instance.
func each(all []WatchedInstance) []statsInstance {
	out := []statsInstance{}
	for i := range all {
		x := &all[i]
		s := instanceOf(x)
		s.ID, s.Node, s.Variant, s.State = string(x.ID), x.Node, x.Artefact.Name, x.shown()
		s.count(s.State)
		s.Carries, s.MeanBatch, s.Predicted, s.Seen = rounded(x.Carries), rounded(x.Size), inMilliseconds(x.Predicted), seenTime(x.Seen)
		out = append(out, s)
	}
	return out
}

// predicted compares what executions took with the prediction, by config. Of several instances it is the mean over their
// executions.
func predicted(all []WatchedInstance) []statsPredicted {
	var out []statsPredicted
	for _, block := range blocks(all) {
		p := statsPredicted{Batch: block.Batch, CPU: block.CPU, GPU: block.GPU}
		var like []*WatchedInstance
		for i := range all {
			x := &all[i]
			if key := instanceOf(x); key.Batch == p.Batch && key.CPU == p.CPU && key.GPU == p.GPU && x.shown() != instanceStopping {
				like, p.Executions = append(like, x), p.Executions+x.Executions
			}
		}
		var n, size, expected, seen float64
		for _, x := range like {
			weight := float64(x.Executions)
			if p.Executions == 0 {
				weight = 1
			}
			n, size = n+weight, size+weight*x.Size
			expected, seen = expected+weight*inMilliseconds(x.Predicted), seen+weight*inMilliseconds(x.Seen)
		}
		p.MeanBatch, p.Predicted = rounded(size/n), rounded(expected/n)
		if p.Executions > 0 {
			p.Seen = known(seen / n)
		}
		out = append(out, p)
	}
	return out
}

// seriesOf lists the steps of a part of a history whose clock is ahead by skew seconds.
func seriesOf(s *history.Series, of span, skew int64) *statsSeries {
	points := s.Points(of.window, of.step)
	n := len(points)
	out := &statsSeries{
		At: make([]int64, n), Arrived: make([]uint64, n), InTime: make([]uint64, n), Late: make([]uint64, n), Refused: make([]uint64, n),
		Failed: make([]uint64, n), P50: make([]*float64, n), P99: make([]*float64, n), Instances: make([]int, n), Cost: make([]int, n),
		Waiting: make([]int, n), Load: make([]float64, n), Carries: make([]float64, n),
	}
	for i, p := range points {
		out.At[i], out.Arrived[i], out.InTime[i], out.Late[i] = p.At-skew, p.Arrived, p.InTime, p.Late
		out.Refused[i], out.Failed[i], out.P50[i], out.P99[i] = p.Refused, p.Failed, known(p.P50), known(p.P99)
		out.Instances[i], out.Cost[i], out.Waiting[i] = p.Instances, p.Cost, p.Waiting
		out.Load[i], out.Carries[i] = rounded(p.Load), rounded(p.Carries)
	}
	return out
}

// statsNode is a machine with the instances on it.
type statsNode struct {
	Name      string         `json:"name"`
	CPU       statsAmount    `json:"cpu_millicores"`
	Memory    statsAmount    `json:"memory_bytes"`
	GPUs      []statsGPU     `json:"gpus,omitempty"`
	Instances []nodeInstance `json:"instances"`
}

type statsAmount struct {
	Total int64 `json:"total"`
	Free  int64 `json:"free"`
}

type statsGPU struct {
	UUID   string      `json:"uuid"`
	Kind   string      `json:"kind,omitempty"`
	GPU    statsAmount `json:"gpu_pct"`
	Memory statsAmount `json:"memory_bytes"`
	Lost   string      `json:"lost,omitempty"`
}

type nodeInstance struct {
	Function  string `json:"function"`
	Namespace string `json:"namespace"`
	Batch     int    `json:"batch"`
	CPU       int    `json:"cpu_millicores"`
	GPU       int    `json:"gpu_pct"`
	Memory    int64  `json:"memory_bytes"`
	State     string `json:"state"`
}

func nodeOf(n *cluster.Node) statsNode {
	out := statsNode{
		Name: n.Name, CPU: statsAmount{int64(n.Total.CPU), int64(n.Free.CPU)}, Memory: statsAmount{n.Total.Memory, n.Free.Memory},
		Instances: []nodeInstance{},
	}
	for _, d := range n.Devices {
		out.GPUs = append(out.GPUs, statsGPU{
			UUID: d.UUID, Kind: d.Kind, GPU: statsAmount{int64(d.Total.GPU), int64(d.Free.GPU)},
			Memory: statsAmount{d.Total.GPUMemory, d.Free.GPUMemory}, Lost: d.Lost,
		})
	}
	return out
}

// The bounds of a series. maxPoints is for all functions of an answer together.
const (
	maxPoints     = 20_000
	defaultWindow = time.Hour
	defaultStep   = history.Step * time.Second
)

// span is the part of the history that a query asks for, in seconds; zero for none.
type span struct{ window, step int64 }

// parseSpan reads ?window and ?step.
func parseSpan(windowText, stepText string) (span, error) {
	if windowText == "" && stepText == "" {
		return span{}, nil
	}
	w, step := defaultWindow, defaultStep
	for _, x := range []struct {
		name, text, example string
		to                  *time.Duration
	}{{"window", windowText, "10m", &w}, {"step", stepText, "10s", &step}} {
		if x.text == "" {
			continue
		}
		d, err := time.ParseDuration(x.text)
		if err != nil || d < time.Second || d%time.Second != 0 {
			return span{}, badField(x.name, x.text, "a number of whole seconds", x.example)
		}
		*x.to = d
	}
	s := span{int64(w / time.Second), int64(step / time.Second)}
	switch {
	case w > defaultWindow:
		return s, badField("window", windowText, "at most 1h, because no more is kept", "1h")
	case s.step < history.Step && s.window > history.Fine:
		return s, web.Refuse(http.StatusBadRequest, "step is %q and window %q: steps below %ds are kept for %ds; raise step or lower window",
			web.Clip(stepText), web.Clip(cmp.Or(windowText, "1h")), history.Step, history.Fine)
	case s.step >= history.Step && s.step%history.Step != 0:
		return s, badField("step", stepText, "below 10s or a multiple of it", "30s")
	case s.step > s.window:
		return s, badField("step", stepText, "at most the window", "10s")
	}
	return s, nil
}

// check refuses a series of too many points for so many functions.
func (s span) check(functions int) error {
	if s.step == 0 {
		return nil
	}
	if points := s.window / s.step * int64(functions); points > maxPoints {
		return web.Refuse(http.StatusBadRequest, "window and step make %d points for %d functions: the maximum is %d; raise step, lower window, or name a function",
			points, functions, maxPoints)
	}
	return nil
}
