// Package annotation reads what a deployment says of itself: the objective
// (com.openfaas.slo.*), how to infer (com.openfaas.infer.*), how far to scale
// (com.openfaas.scale.*) and the resources. faas-cli drops every
// field of stack.yml that it does not know, so annotations are the only way in
// for what OpenFaaS has no field for; labels with the same keys are taken too.
// How often a queued request is tried (com.openfaas.retry.*) is package retry's.
//
// Everything that cannot be read is refused with an [Error], which prints as
// one sentence that names the key, the value, what is allowed, and an example.
package annotation

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/async/retry"
)

// The keys that are understood, as annotations or as labels.
const (
	// SLOLatency is the time within which a request is to be answered, from
	// its arrival at the provider: a Go duration above 0, at most 10m. With
	// it, a function is an inference function.
	SLOLatency = "com.openfaas.slo.latency"
	// SLOPercentile is the share of requests, in percent, that must be
	// answered within SLOLatency: a number between 0 and 100, neither
	// included; 99 if absent.
	SLOPercentile = "com.openfaas.slo.percentile"
	// InferModel is the model file inside the bundle; if absent, the
	// bundle's manifest names it.
	InferModel = "com.openfaas.infer.model"
	// InferImage is what the model wants of an image: its width and height in
	// pixels, and what else package picture reads, as "224x224 fit=crop". With it,
	// the function takes JPEG and PNG images.
	InferImage = "com.openfaas.infer.image"
	// InferMaxBatch is the most requests in one batch: 1 to 1024, 32 if
	// absent.
	InferMaxBatch = "com.openfaas.infer.max-batch"
	// InferPolicy is how requests are batched: one of [batching.Names]; the
	// provider's default if absent.
	InferPolicy = "com.openfaas.infer.policy"
	// InferKeepAlive is how long an instance without requests stays: a Go
	// duration above 0, at most 24h; the provider's default if absent.
	InferKeepAlive = "com.openfaas.infer.keep-alive"
	// InferWeight is what the function weighs beside others where all together ask for
	// more than the nodes have: a number from 0.01 to 100; 1 if absent.
	InferWeight = "com.openfaas.infer.weight"
	// InferProblem is what a function's status says of why it, or its latest
	// deployment, is not served as it should be. In a deployment it means nothing:
	// one that was made from a status may have it.
	InferProblem = "com.openfaas.infer.problem"
	// ScaleMin and ScaleMax bound the number of instances, as in the rest of
	// OpenFaaS: whole numbers from 0 to [MaxReplicas]. By default an inference
	// function has 0 and no bound but the node, an ordinary one
	// [DefaultMinReplicas] and [DefaultMaxReplicas].
	ScaleMin = "com.openfaas.scale.min"
	ScaleMax = "com.openfaas.scale.max"
	// ScaleZero, "true", lets an idle function lose the instances that
	// ScaleMin would keep; "false" keeps at least one.
	ScaleZero = "com.openfaas.scale.zero"
	// ScaleZeroDuration is how long a function must have been idle for
	// ScaleZero to take effect: a Go duration above 0, at most 24h;
	// [DefaultZeroDuration] if absent.
	ScaleZeroDuration = "com.openfaas.scale.zero-duration"
	// ScaleType is what an ordinary function is scaled by: "rps", requests/s,
	// if absent, or "capacity", requests in flight.
	ScaleType = "com.openfaas.scale.type"
	// ScaleTarget is how much of ScaleType one instance of an ordinary function
	// is to take: a number above 0; [DefaultTarget] if absent.
	ScaleTarget = "com.openfaas.scale.target"
	// ScaleTargetProportion is the part of ScaleTarget at which another
	// instance is started: above 0, at most 1; 1 if absent.
	ScaleTargetProportion = "com.openfaas.scale.target-proportion"
	// ScaleFactor is by how many percent of ScaleMax OpenFaaS' own autoscaler goes
	// up at a time, 0 to 100. Here load decides by how much; but with 0 it changes
	// nothing of an ordinary function, as it does there.
	ScaleFactor = "com.openfaas.scale.factor"
)

// The values of ScaleType.
const (
	TypeRPS      = "rps"
	TypeCapacity = "capacity"
)

// The values that hold where a deployment says nothing, and the limits.
const (
	DefaultPercentile = 99.0
	DefaultMaxBatch   = 32
	LargestBatch      = 1024
	LeastWeight       = 0.01
	LargestWeight     = 100.0
	LongestSLO        = 10 * time.Minute
	LongestKeepAlive  = 24 * time.Hour
	MaxReplicas       = 10000
	// An ordinary function's, as the rest of OpenFaaS has them.
	DefaultMinReplicas  = 1
	DefaultMaxReplicas  = 20
	DefaultZeroDuration = 15 * time.Minute
	// DefaultTarget is the rate, in requests/s, above which OpenFaaS Community
	// Edition's alert scales a function up.
	DefaultTarget = 5.0
	// LeastCPU is the smallest CPU limit in millicores: below it, a quota of
	// 10 ms periods, for which times are predicted, cannot be had.
	LeastCPU = 100
	// LeastMemory is the smallest memory limit in bytes: with less, not even a
	// process starts, and a unit was forgotten.
	LeastMemory = 1 << 20
)

// known are the keys of the two families in which an unknown key is refused
// (it would be a misspelling that silently changes nothing).
var known = map[string][]string{
	"com.openfaas.slo.":   {SLOBudget, SLOLatency, SLOPercentile},
	"com.openfaas.infer.": {InferImage, InferKeepAlive, InferMaxBatch, InferModel, InferPolicy, InferWeight},
}

// scale are the keys of scaling. Others below com.openfaas.scale. belong to
// other providers and are left to them.
var scale = []string{ScaleFactor, ScaleMax, ScaleMin, ScaleTarget, ScaleTargetProportion, ScaleType, ScaleZero, ScaleZeroDuration}

// Inference is what a deployment asks for, checked.
type Inference struct {
	// IsInference tells whether the deployment gives an SLO. Without one it
	// is an ordinary function, and of the fields only those of scaling and the
	// resources mean anything.
	IsInference bool
	// SLO is the time from a request's arrival to its answer.
	SLO time.Duration
	// Percentile of requests that the SLO is meant for, in (0, 100).
	Percentile       float64
	PercentileStated bool // the deployment gives it
	// Budget is the most that a request may cost on average, 0 is no bound.
	Budget float64
	// Model is a slash-separated path inside the bundle, "" if the bundle's
	// manifest is to decide.
	Model string
	// Image is what the model wants of an image, for model.ParseImageForm, "" if the
	// function takes no images.
	Image string
	// MaxBatch is the most requests in one batch.
	MaxBatch int
	// Policy is one of batching.Names, "" for the provider's default.
	Policy string
	// Weight is the function's among others where there is too little for all, 0 for 1.
	Weight float64
	// KeepAlive is how long an idle instance stays, 0 for the provider's
	// default.
	KeepAlive time.Duration
	// MinReplicas instances are kept even without load; there are never more
	// than MaxReplicas (0: no bound but the node).
	MinReplicas, MaxReplicas int
	// ScaleZero: without a request for ZeroDuration, MinReplicas does not hold.
	ScaleZero    bool
	ZeroDuration time.Duration
	// ScaleType is what an ordinary function is scaled by, TypeRPS or
	// TypeCapacity, ScaleTarget how much of it one instance is to take:
	// requests/s or requests in flight.
	ScaleType   string
	ScaleTarget float64
	// Limits and Requests are the deployment's resources per instance; a
	// dimension that it does not name is 0.
	Limits, Requests cluster.Resources
}

// Error is one thing in a deployment that cannot be accepted.
type Error struct {
	// Key is the annotation, label or field, Value what it holds ("" if it is
	// absent).
	Key, Value string
	// Why is what is allowed, as the end of a sentence; Example a value that
	// would be accepted, "" if none helps.
	Why, Example string
}

// Error is a sentence: key, value, what is allowed, example.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Key)
	if e.Value == "" {
		b.WriteString(" is not set: ")
	} else {
		fmt.Fprintf(&b, " is %q: ", shorten(e.Value))
	}
	b.WriteString(e.Why)
	if e.Example != "" {
		fmt.Fprintf(&b, ", for example %q", e.Example)
	}
	return b.String()
}

// HTTPStatus is 400: the deployment is at fault.
func (e *Error) HTTPStatus() int { return 400 }

// shorten keeps a hostile value from filling the answer and the log.
func shorten(s string) string {
	const most = 120
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// Parse checks a whole deployment (name, namespace, image, environment,
// resources, annotations and labels) and returns what it asks for. The error
// is an *Error, the first by the order of the fields, then of the keys. A
// deployment without an SLO is no error here: see Inference.IsInference.
func Parse(d types.FunctionDeployment) (Inference, error) {
	in := Inference{Percentile: DefaultPercentile, MaxBatch: DefaultMaxBatch,
		ZeroDuration: DefaultZeroDuration, ScaleType: TypeRPS, ScaleTarget: DefaultTarget}
	if err := checkFields(d); err != nil {
		return Inference{}, err
	}
	if err := in.resources(d); err != nil {
		return Inference{}, err
	}
	values, err := merge(d)
	if err != nil {
		return Inference{}, err
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if err := in.set(key, values[key]); err != nil {
			return Inference{}, err
		}
	}
	if err := in.complete(d, values); err != nil {
		return Inference{}, err
	}
	if err := checkRetry(d); err != nil {
		return Inference{}, err
	}
	return in, nil
}

// checkRetry refuses what package retry cannot read. It reads the annotations
// itself when a queued request has failed, which is too late to tell anybody.
func checkRetry(d types.FunctionDeployment) error {
	if d.Annotations == nil {
		return nil
	}
	_, err := retry.Parse(*d.Annotations)
	if wrong := new(retry.Error); errors.As(err, &wrong) {
		return &Error{Key: wrong.Key, Value: wrong.Value, Why: wrong.Why, Example: wrong.Example}
	}
	return err
}

// merge returns the keys that Parse reads, from annotations and labels.
func merge(d types.FunctionDeployment) (map[string]string, error) {
	values := map[string]string{}
	for _, source := range []*map[string]string{d.Annotations, d.Labels} {
		if source == nil {
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(*source)) {
			mine, err := understood(key, (*source)[key])
			if err != nil {
				return nil, err
			}
			if !mine {
				continue
			}
			before, twice := values[key]
			if now := (*source)[key]; twice && before != now {
				return nil, &Error{Key: key, Value: now,
					Why: fmt.Sprintf("the label must not differ from the annotation with the same key, which is %q; keep one of them", shorten(before))}
			}
			values[key] = (*source)[key]
		}
	}
	return values, nil
}

// understood tells whether a key is one that Parse reads; a key that looks as
// if it were is an error.
func understood(key, value string) (bool, error) {
	if slices.Contains(scale, key) {
		return true, nil
	}
	for prefix, keys := range known {
		if !strings.HasPrefix(key, prefix) {
			continue
		}
		if slices.Contains(keys, key) {
			return true, nil
		}
		return false, &Error{Key: shorten(key), Value: value,
			Why: "there is no such key, the known ones are " + strings.Join(keys, ", ")}
	}
	return false, nil
}

// set reads one key.
func (in *Inference) set(key, value string) (err error) {
	switch key {
	case SLOLatency:
		in.IsInference = true
		in.SLO, err = duration(key, value, LongestSLO, "200ms")
	case SLOPercentile:
		in.Percentile, err = percentile(key, value)
	case SLOBudget:
		in.Budget, err = budget(key, value)
	case InferModel:
		in.Model, err = modelPath(key, value)
	case InferImage:
		in.Image, err = image(key, value)
	case InferMaxBatch:
		in.MaxBatch, err = integer(key, value, 1, LargestBatch, "32")
	case InferPolicy:
		in.Policy = value
		if !slices.Contains(batching.Names(), value) {
			err = &Error{Key: key, Value: value, Why: "it must be one of " + strings.Join(batching.Names(), ", "), Example: batching.SharedName}
		}
	case InferWeight:
		in.Weight, err = weight(key, value)
	case InferKeepAlive:
		in.KeepAlive, err = duration(key, value, LongestKeepAlive, "5m")
	default:
		err = in.setScale(key, value)
	}
	return err
}
