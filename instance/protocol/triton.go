package protocol

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// platformOf is what runs the model, as Triton names it.
func platformOf(m *Model) string { return cmp.Or(m.Platform, "onnxruntime_onnx") }

// configType is an element type's name in Triton's model configuration.
func configType(t tensor.Type) string {
	if t == tensor.Bytes {
		return "TYPE_STRING"
	}
	return "TYPE_" + string(t)
}

// config answers GET /v2/models/NAME/config in the form of Triton's model configuration. The
// maximum batch is what one request may have. It is 0, as in Triton, if a tensor does not have
// its batch dimension first; the dimensions are then the whole shape.
func config(m *Model, name string) frame.Response {
	type object = map[string]any
	batch := m.MaxRows
	for _, info := range slices.Concat(m.Inputs, m.Outputs) {
		if info.Edge != nil {
			batch = 0
		}
	}
	tensors := func(infos []tensor.Info) []object {
		out := make([]object, len(infos))
		for i, info := range infos {
			dims := info.Shape[1:]
			switch {
			case info.Edge != nil:
				dims = info.Edge.Shape
			case batch == 0:
				dims = info.Shape
			}
			out[i] = object{"name": info.Name, "data_type": configType(info.Type), "dims": append([]int64{}, dims...)}
		}
		return out
	}
	inputs := tensors(m.Inputs)
	for _, in := range inputs {
		in["format"] = "FORMAT_NONE"
	}
	return answerJSON(object{
		"name": name, "platform": platformOf(m), "max_batch_size": batch,
		"version_policy": object{"latest": object{"num_versions": 1}},
		"input":          inputs, "output": tensors(m.Outputs),
	})
}

// Duration is a number of events and the time that they took together.
type Duration struct {
	Count uint64
	Time  time.Duration
}

// Plus adds events and their time.
func (d Duration) Plus(count uint64, took time.Duration) Duration {
	return Duration{d.Count + count, d.Time + time.Duration(count)*took}
}

// Statistics are a server's counts since its start, for Triton's statistics extension.
type Statistics struct {
	// Last is the time of the last run, zero if there was none.
	Last time.Time
	// Requests and Failed count inference requests by their outcome. A request's time is that
	// of its batch in the server.
	Requests, Failed Duration
	// Rows counts the rows of all runs.
	Rows uint64
	// Waited is the time of requests that waited for a turn.
	Waited Duration
	// Runs are the engine's runs by their number of rows.
	Runs map[int]Duration
}

// counted is a [Duration] in the form of the extension.
type counted struct {
	Count uint64 `json:"count"`
	NS    int64  `json:"ns"`
}

func (d Duration) counted() counted { return counted{d.Count, d.Time.Nanoseconds()} }

// stats answers GET /v2/models/NAME/stats. They are those of this instance. Inputs and outputs are
// converted outside the runs, so their times are not measured and count nothing.
func stats(m *Model, name string) frame.Response {
	type object = map[string]any
	var s Statistics
	if m.Statistics != nil {
		s = m.Statistics()
	}
	var runs Duration
	batches := []object{}
	for _, rows := range slices.Sorted(maps.Keys(s.Runs)) {
		run := s.Runs[rows]
		runs.Count, runs.Time = runs.Count+run.Count, runs.Time+run.Time
		batches = append(batches, object{
			"batch_size": rows, "compute_input": counted{}, "compute_infer": run.counted(), "compute_output": counted{},
		})
	}
	last := int64(0)
	if !s.Last.IsZero() {
		last = s.Last.UnixMilli()
	}
	return answerJSON(object{"model_stats": []object{{
		"name": name, "version": modelVersion, "last_inference": last, "inference_count": s.Rows, "execution_count": runs.Count,
		"inference_stats": object{
			"success": s.Requests.counted(), "fail": s.Failed.counted(), "queue": s.Waited.counted(),
			"compute_input": counted{}, "compute_infer": runs.counted(), "compute_output": counted{},
			"cache_hit": counted{}, "cache_miss": counted{},
		},
		"batch_stats": batches,
	}}})
}
