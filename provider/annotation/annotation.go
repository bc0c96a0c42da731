// Package annotation parses and checks a deployment: the objective
// (com.openfaas.slo.*), inference (com.openfaas.infer.*), scaling
// (com.openfaas.scale.*) and the resources. It does not decide what to do with them, and
// leaves the retries of queued requests (com.openfaas.retry.*) to package retry. Begin
// reading at [Parse].
//
// OpenFaaS has no fields for these settings, and faas-cli drops every field of stack.yml
// that it does not know. That leaves annotations; labels with the same keys count too.
// A value that cannot be read is refused with an [Error]: one sentence with the key, the
// value, what is allowed, and an example.
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
	"github.com/faas-infer/faas-infer/model/source"
	"github.com/faas-infer/faas-infer/provider/access"
	"github.com/faas-infer/faas-infer/provider/async/retry"
)

// The keys that Parse reads, as annotations or as labels.
const (
	// SLOLatency is the longest time from a request's arrival at the provider to its
	// answer: a Go duration above 0, at most 10m. A function that sets it is an
	// inference function.
	SLOLatency = "com.openfaas.slo.latency"
	// SLOLatencyMin is the shortest latency that capacity is planned for when requests ask for
	// less than SLOLatency: a Go duration above 0, at most SLOLatency, which it is if absent.
	SLOLatencyMin = "com.openfaas.slo.latency.min"
	// SLOPercentile is the share of requests, in percent, that must be
	// answered within SLOLatency: a number between 0 and 100, neither
	// included; 99 if absent.
	SLOPercentile = "com.openfaas.slo.percentile"
	// SLOAccuracy is the least accuracy, in percent, of the variants that answer requests:
	// a number from 0 to 100; 0 if absent. A paper reads it.
	SLOAccuracy = "com.openfaas.slo.accuracy"
	// InferModel is the model file inside the bundle, or the URI of a model outside it; if absent, the
	// bundle's manifest names the file.
	InferModel = "com.openfaas.infer.model"
	// InferImage is the form in which the model takes images: width and height in
	// pixels, and the options of [model.ParseImageForm], for example "224x224
	// fit=crop". With it, the function takes images.
	InferImage = "com.openfaas.infer.image"
	// InferShapes gives the model's free dimensions the sizes that requests usually have, as
	// whole shapes by input in the notation of [tensor.ParseShapes]: "ids:1x128,mask:1x128". The
	// first dimension is the batch, whose size there does not matter. Without it the sizes are
	// found.
	InferShapes = "com.openfaas.infer.shapes"
	// InferMaxShapes has the largest sizes that a request may have, in the same notation. A
	// larger request is refused.
	InferMaxShapes = "com.openfaas.infer.shapes.max"
	// InferMaxLength is the maximum number of tokens of a text, special ones included, and what becomes of longer ones:
	// "256", "256,refuse", or "refuse" for the bundle's own number. Texts are cut unless it says refuse.
	InferMaxLength = "com.openfaas.infer.max-length"
	// InferMaxBatch is the maximum number of requests in one batch: 1 to 1024, 32 if
	// absent.
	InferMaxBatch = "com.openfaas.infer.max-batch"
	// InferPolicy is the batching policy: one of [batching.Names]; the provider's
	// default if absent.
	InferPolicy = "com.openfaas.infer.policy"
	// InferKeepAlive is how long an instance without requests stays: a Go
	// duration above 0, at most 24h; the provider's default if absent.
	InferKeepAlive = "com.openfaas.infer.keep-alive"
	// InferWeight is the function's weight against others if all together ask for more
	// than the nodes have: a number from 0.01 to 100; 1 if absent.
	InferWeight = "com.openfaas.infer.weight"
	// InferHedge is "on", the default, or "off". With "off" no request is executed twice,
	// because its execution has side effects. With "on" a request whose instance is lost
	// or does not answer runs once more on another one.
	InferHedge = "com.openfaas.infer.hedge"
	// InferPartition says whether the model may be cut over several instances that answer
	// together (Gillis): "off", the default; "auto" for the cheapest way that meets the
	// objective, the uncut model included; or "latency" for the fastest.
	InferPartition = "com.openfaas.infer.partition"
	// InferPartitionInstances is the maximum number of instances that run the model
	// together: 2 to [MostPartitionInstances], [DefaultPartitionInstances] if absent.
	InferPartitionInstances = "com.openfaas.infer.partition-instances"
	// InferShadow says whether instances may have shadows, which hold a part of the model and
	// compute rows of their batches (AsyFunc): "off", the default; or "auto" where that is the cheapest
	// way to serve more.
	InferShadow = "com.openfaas.infer.shadow"
	// InferShare says with whom the function shares instances and batches: "none"; "namespace" for the
	// functions of its namespace that serve the same model in the same way; or "all" for those of every
	// namespace that say so, too. [DefaultShare] if absent, with which a program shares nothing.
	InferShare = "com.openfaas.infer.share"
	// InferSharing is in a function's status with whom it shares instances, or why with nobody. In a
	// deployment it is ignored.
	InferSharing = "com.openfaas.infer.sharing"
	// InferAccess names a secret of the function's namespace with the keys of those who may call it,
	// for [access.Parse]. Without it, and without one for the namespace, anybody may. It is an
	// annotation of a namespace, too. It fits every function.
	InferAccess = "com.openfaas.infer.access"
	// InferRate is the maximum rate of requests, for [access.ParseRate]: of each caller if the function
	// has keys, otherwise of all together. It fits every function.
	InferRate = "com.openfaas.infer.rate"
	// InferCanary says how a later revision takes over: the percentages of the requests that it gets one after the other,
	// rising, such as "10" or "5,25,50"; or "header" for those requests alone that ask for it. It fits every function.
	// InferCanaryMirror is the percentage of the requests that the later revision answers as well, for a comparison of the
	// answers. InferCanaryDifferent is the percentage of these that may differ, InferCanaryMargin by how many points more
	// of the requests may fail or miss the objective, and InferCanaryTimeout how long its first instance may take.
	InferCanary          = "com.openfaas.infer.canary"
	InferCanaryMirror    = "com.openfaas.infer.canary-mirror"
	InferCanaryDifferent = "com.openfaas.infer.canary-different"
	InferCanaryMargin    = "com.openfaas.infer.canary-margin"
	InferCanaryTimeout   = "com.openfaas.infer.canary-timeout"
	// InferDevice says on what the model may run: "auto", the default, for the CPU or a GPU,
	// whichever is cheaper; "cuda" for an NVIDIA GPU only; or "cpu".
	InferDevice = "com.openfaas.infer.device"
	// InferPlan is in a function's status how its model is cut. In a deployment it is ignored.
	InferPlan = "com.openfaas.infer.plan"
	// InferReach is in a function's status for which sizes of requests its objective holds. In a
	// deployment it is ignored.
	InferReach = "com.openfaas.infer.reach"
	// InferTexts is in a function's status what its model does with texts. In a deployment it is ignored.
	InferTexts = "com.openfaas.infer.texts"
	// InferPromise is in a function's status what was promised and how well it was kept. In a deployment it is
	// ignored.
	InferPromise = "com.openfaas.infer.promise"
	// InferProgress is in a function's status what is being found out about its model, or for what
	// that waits, until its times are known. In a deployment it is ignored.
	InferProgress = "com.openfaas.infer.progress"
	// InferRollout is in a function's status how far the gradual rollout of a later revision is. In a deployment it is
	// ignored.
	InferRollout = "com.openfaas.infer.rollout"
	// InferLearntShapes is in a function's status which sizes of its model's free dimensions a request
	// has taught, in the notation of InferShapes. In a deployment it is ignored.
	InferLearntShapes = "com.openfaas.infer.shapes.learnt"
	// InferProblem is in a function's status the reason why the function, or its latest
	// deployment, is not served as it should be. In a deployment it is ignored: a
	// deployment made from a status may have it.
	InferProblem = "com.openfaas.infer.problem"
	// ScaleMin and ScaleMax bound the number of instances, as in the rest of
	// OpenFaaS: whole numbers from 0 to [MaxReplicas]. By default an inference
	// function has 0 and no upper bound but the nodes. An ordinary function has
	// [DefaultMinReplicas] and [DefaultMaxReplicas].
	ScaleMin = "com.openfaas.scale.min"
	ScaleMax = "com.openfaas.scale.max"
	// ScaleZero, if "true", lets an idle function lose the instances that
	// ScaleMin would keep; "false" keeps at least one.
	ScaleZero = "com.openfaas.scale.zero"
	// ScaleZeroDuration is how long a function must be idle before ScaleZero takes
	// effect: a Go duration above 0, at most 24h; [DefaultZeroDuration] if absent.
	ScaleZeroDuration = "com.openfaas.scale.zero-duration"
	// ScaleType is the load by which an ordinary function is scaled: "rps" for
	// requests/s or "capacity" for requests in flight; "rps" if absent.
	ScaleType = "com.openfaas.scale.type"
	// ScaleTarget is the load of one instance of an ordinary function, in the unit of
	// ScaleType: a number above 0; [DefaultTarget] if absent.
	ScaleTarget = "com.openfaas.scale.target"
	// ScaleTargetProportion is the part of ScaleTarget at which the provider starts
	// another instance: above 0, at most 1; 1 if absent.
	ScaleTargetProportion = "com.openfaas.scale.target-proportion"
	// ScaleFactor is the step of OpenFaaS' own autoscaler in percent of ScaleMax, 0 to
	// 100. The provider uses the load instead of a step. Only 0 has an effect: load then
	// does not scale an ordinary function, as in OpenFaaS.
	ScaleFactor = "com.openfaas.scale.factor"
)

// SetObjective makes annotations those of an inference function with this latency, as SLOLatency has it.
func SetObjective(annotations map[string]string, latency string) { annotations[SLOLatency] = latency }

// ShadowAuto is the value of InferShadow beside "off".
const ShadowAuto = "auto"

// The values of InferShare, and the one that counts if it is absent.
const (
	ShareNone      = "none"
	ShareNamespace = "namespace"
	ShareAll       = "all"
	DefaultShare   = ShareNamespace
)

// The values of InferPartition beside "off".
const (
	PartitionAuto    = "auto"
	PartitionLatency = "latency"
)

// The values of InferDevice beside "auto".
const (
	DeviceCPU  = "cpu"
	DeviceCUDA = "cuda"
)

// The values of ScaleType.
const (
	TypeRPS      = "rps"
	TypeCapacity = "capacity"
)

// Defaults for absent keys, and the limits of values.
const (
	DefaultPercentile = 99.0
	DefaultMaxBatch   = 32
	LargestBatch      = 1024
	// These bound the instances that run a model together.
	DefaultPartitionInstances = 4
	MostPartitionInstances    = 64
	LeastWeight               = 0.01
	LargestWeight             = 100.0
	// LeastSLO is about the way to an instance and back, without an execution: that takes some 80 µs.
	LeastSLO         = 100 * time.Microsecond
	LongestSLO       = 10 * time.Minute
	LongestKeepAlive = 24 * time.Hour
	MaxReplicas      = 10000
	// These hold for ordinary functions, as in the rest of OpenFaaS.
	DefaultMinReplicas  = 1
	DefaultMaxReplicas  = 20
	DefaultZeroDuration = 15 * time.Minute
	// DefaultTarget is the rate, in requests/s, above which OpenFaaS Community
	// Edition's alert scales a function up.
	DefaultTarget = 5.0
	// LeastCPU is the smallest CPU limit of a model in millicores. Times are predicted
	// for CPU quotas in periods of 10 ms, and a smaller quota does not exist.
	LeastCPU = 100
	// LeastMemory is the smallest memory limit in bytes. A process cannot start with
	// less, so the user has forgotten the unit. LeastModelMemory is that of a model: an idle
	// instance of a model of 26 KB has 12.5 MB that the kernel cannot take back.
	LeastMemory      = 1 << 20
	LeastModelMemory = 16 << 20
)

// knownKeys lists the core's keys of the two prefixes under which an unknown key is refused. Such a
// key is a misspelling that would change nothing. Papers add theirs with [Register].
var knownKeys = map[string][]string{
	"com.openfaas.slo.": {SLOLatency, SLOLatencyMin, SLOPercentile},
	"com.openfaas.infer.": {InferAccess, InferAnswerCache, InferCanary, InferCanaryDifferent, InferCanaryMargin, InferCanaryMirror, InferCanaryTimeout,
		InferDevice, InferHedge, InferImage, InferKeepAlive, InferMaxBatch, InferMaxLength, InferMaxShapes, InferModel, InferPartition, InferPartitionInstances, InferPolicy, InferRate,
		InferShadow, InferShapes, InferShare, InferWeight},
}

// scaleKeys lists the keys of scaling. Other keys below com.openfaas.scale. belong to other
// providers and are ignored.
var scaleKeys = []string{ScaleFactor, ScaleMax, ScaleMin, ScaleTarget, ScaleTargetProportion, ScaleType, ScaleZero, ScaleZeroDuration}

// Inference is a deployment's settings, checked.
type Inference struct {
	// IsInference tells whether the deployment gives an SLO. Without one it
	// is an ordinary function, and only the fields of scaling and the resources have
	// a meaning.
	IsInference bool
	// SLO is SLOLatency, and Shortest SLOLatencyMin.
	SLO, Shortest time.Duration
	// Percentile is SLOPercentile, in (0, 100).
	Percentile       float64
	PercentileStated bool // the deployment gives it
	// Accuracy is SLOAccuracy, 0 for no bound.
	Accuracy float64
	// Variants are the names in separated by commas, "" for all that the
	// bundle lists. Auto says that it is "auto".
	Variants string
	Auto     bool
	// Accurate says that InferPrefer is "accuracy".
	Accurate bool
	// Model is InferModel: a slash-separated path inside the bundle, "" if the bundle's
	// manifest decides.
	Model string
	// Source is the URI that InferModel has instead, for [source.Parse], "" for none.
	Source string
	// Partition is InferPartition, "" for off. PartitionInstances is InferPartitionInstances.
	Partition          string
	PartitionInstances int
	// Shadow is InferShadow, "" for off.
	Shadow string
	// Device is InferDevice, "" for auto.
	Device string
	// Image is InferImage, for model.ParseImageForm, "" if the function takes no images.
	Image string
	// Shapes and MaxShapes are InferShapes and InferMaxShapes, for tensor.ParseShapes, "" if
	// the deployment does not say.
	Shapes, MaxShapes string
	// MaxLength and RefuseLong are InferMaxLength, 0 for the bundle's own number.
	MaxLength  int
	RefuseLong bool
	// MaxBatch is InferMaxBatch.
	MaxBatch int
	// Policy is one of batching.Names, "" for the provider's default.
	Policy string
	// Weight is InferWeight, 0 if absent, which means 1.
	Weight float64
	// Once says that InferHedge is off: no request may be executed twice.
	Once bool
	// KeepAlive is InferKeepAlive, 0 for the provider's default.
	KeepAlive time.Duration
	// MinReplicas is the number of instances kept even without load, MaxReplicas the
	// upper bound (0: no bound but the nodes).
	MinReplicas, MaxReplicas int
	// ScaleZero cancels MinReplicas when there was no request for ZeroDuration.
	ScaleZero    bool
	ZeroDuration time.Duration
	// ScaleType is TypeRPS or TypeCapacity. ScaleTarget is the load at which another
	// instance starts, in requests/s or requests in flight: ScaleTarget times
	// ScaleTargetProportion of the deployment. 0: load does not scale the function.
	ScaleType   string
	ScaleTarget float64
	// Share is InferShare, "" if absent.
	Share string
	// Access is InferAccess, "" for none. Rate is InferRate, the zero value for none.
	Access string
	Rate   access.Rate
	// Canary is how a later revision takes over.
	Canary Canary
	// AnswerCache is InferAnswerCache in bytes, 0 for none.
	AnswerCache int64
	// Stated has the values of keys that papers add ([Register]).
	Stated Stated
	// Limits and Requests are the deployment's resources per instance. A resource that
	// it does not name is 0.
	Limits, Requests cluster.Resources
}

// Error is one fault of a deployment.
type Error struct {
	// Key is the annotation, label or field, Value its value ("" if absent).
	Key, Value string
	// Why says what is allowed, as the end of a sentence. Example is a value that
	// would be accepted, "" for none.
	Why, Example string
}

// Error returns a sentence: key, value, what is allowed, example.
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

// HTTPStatus returns 400: the deployment is at fault.
func (e *Error) HTTPStatus() int { return 400 }

// shorten cuts a value to 120 bytes, so a hostile one cannot fill the answer and the log.
func shorten(s string) string {
	const maximum = 120
	if len(s) <= maximum {
		return s
	}
	return strings.ToValidUTF8(s[:maximum], "") + "…"
}

// Parse checks a whole deployment (name, namespace, image, environment,
// resources, annotations and labels) and returns its settings. The error is an *Error:
// the first in the order of the fields, then of the keys. Then the settings are only Access and Rate, so that a
// function that an earlier version accepted stays closed. A deployment without an SLO is valid: see Inference.IsInference.
func Parse(d types.FunctionDeployment) (Inference, error) {
	in, err := parse(d)
	if err != nil {
		in = ofCallers(d)
	}
	return in, err
}

// ParseStored is [Parse] for a deployment that was accepted before, perhaps by an earlier version. It reads a value that
// this version has no more as the nearest that it has, so that the function goes on serving.
func ParseStored(d types.FunctionDeployment) (Inference, error) {
	for _, settings := range []**map[string]string{&d.Annotations, &d.Labels} {
		if *settings != nil && (**settings)[InferShadow] == "always" {
			nearest := maps.Clone(**settings)
			nearest[InferShadow] = ShadowAuto
			*settings = &nearest
		}
	}
	return Parse(d)
}

func parse(d types.FunctionDeployment) (Inference, error) {
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

// Objective returns the SLO of a function that a provider describes, 0 if it has none. A description also has
// annotations that a deployment cannot have.
func Objective(f types.FunctionStatus) time.Duration {
	var in Inference
	for _, of := range []*map[string]string{f.Labels, f.Annotations} {
		if of == nil || (*of)[SLOLatency] == "" {
			continue
		}
		if err := in.set(SLOLatency, (*of)[SLOLatency]); err != nil {
			return 0 // The function is described because it is broken.
		}
	}
	return in.SLO
}

// checkRetry refuses annotations that package retry cannot read. Package retry reads them
// again after a queued request has failed, when no user would see the error.
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

// merge returns the values of the keys that Parse reads, from annotations and labels.
func merge(d types.FunctionDeployment) (map[string]string, error) {
	values := map[string]string{}
	for _, source := range []*map[string]string{d.Annotations, d.Labels} {
		if source == nil {
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(*source)) {
			read, err := isRead(key, (*source)[key])
			if err != nil {
				return nil, err
			}
			if !read {
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

// isRead reports whether Parse reads a key. An unknown key with one of the prefixes
// in knownKeys is an error.
func isRead(key, value string) (bool, error) {
	if slices.Contains(scaleKeys, key) {
		return true, nil
	}
	for prefix, keys := range knownKeys {
		if !strings.HasPrefix(key, prefix) {
			continue
		}
		if slices.Contains(keys, key) || Added(key) {
			return true, nil
		}
		return false, noSuchKey(key, value, prefix)
	}
	return false, nil
}

// checkPartition refuses a number of instances for a model that may not be cut.
func (in *Inference) checkPartition(values map[string]string) error {
	if in.PartitionInstances == 0 || in.Partition != "" {
		return nil
	}
	return &Error{Key: InferPartitionInstances, Value: values[InferPartitionInstances], Why: "it is of use only with " + InferPartition + ": auto or latency; set that, or leave it out"}
}

// set reads one key.
func (in *Inference) set(key, value string) (err error) {
	if k, is := added[key]; is {
		return k.Set(in, value)
	}
	switch key {
	case SLOLatency:
		in.IsInference = true
		if in.SLO, err = duration(key, value, LongestSLO, "200ms"); err == nil && in.SLO < LeastSLO {
			why := "it must be at least " + LeastSLO.String() + ", because the way to an instance and back alone takes about that"
			err = &Error{Key: key, Value: value, Why: why, Example: "200ms"}
		}
	case SLOLatencyMin:
		in.Shortest, err = duration(key, value, LongestSLO, "50ms")
	case SLOPercentile:
		in.Percentile, err = percentile(key, value)
	case InferModel:
		if source.Is(value) {
			in.Source, err = modelSource(value)
			break
		}
		in.Model, err = modelPath(key, value)
	case InferPartition:
		in.Partition, err = partition(key, value)
	case InferPartitionInstances:
		in.PartitionInstances, err = integer(key, value, 2, MostPartitionInstances, "4")
	case InferShadow:
		in.Shadow, err = shadows(key, value)
	case InferDevice:
		in.Device, err = device(key, value)
	case InferImage:
		in.Image, err = image(key, value)
	case InferShapes:
		in.Shapes, err = shapes(key, value)
	case InferMaxShapes:
		in.MaxShapes, err = shapes(key, value)
	case InferMaxLength:
		in.MaxLength, in.RefuseLong, err = maxLength(key, value)
	case InferMaxBatch:
		in.MaxBatch, err = integer(key, value, 1, LargestBatch, "32")
	case InferPolicy:
		in.Policy = value
		if !slices.Contains(batching.Names(), value) {
			err = &Error{Key: key, Value: value, Why: "it must be one of " + strings.Join(batching.Names(), ", "), Example: batching.SharedName}
		}
	case InferWeight:
		in.Weight, err = weight(key, value)
	case InferHedge:
		in.Once, err = off(key, value)
	case InferShare:
		in.Share = value
		if all := []string{ShareNone, ShareNamespace, ShareAll}; !slices.Contains(all, value) {
			err = &Error{Key: key, Value: value, Why: "it must be one of " + strings.Join(all, ", "), Example: ShareNamespace}
		}
	case InferAccess:
		in.Access, err = secretWithKeys(value)
	case InferAnswerCache:
		in.AnswerCache, err = answerCache(value)
	case InferRate:
		in.Rate, err = requestRate(key, value)
	case InferKeepAlive:
		in.KeepAlive, err = duration(key, value, LongestKeepAlive, "5m")
	case InferCanary, InferCanaryMirror, InferCanaryDifferent, InferCanaryMargin, InferCanaryTimeout:
		err = in.Canary.set(key, value)
	default:
		err = in.setScale(key, value)
	}
	return err
}

// modelSource refuses what is no URI of a model.
func modelSource(value string) (string, error) {
	if _, err := source.Parse(value); err != nil {
		shown, _, _ := strings.Cut(value, "?") // The rest may be a credential, and so may what is before an @.
		if scheme, rest, _ := strings.Cut(shown, "://"); strings.Contains(rest, "@") && !strings.HasPrefix(scheme, source.HF) {
			_, rest, _ = strings.Cut(rest, "@")
			shown = scheme + "://…@" + rest
		}
		return "", &Error{Key: InferModel, Value: shown, Why: err.Error(), Example: "https://models.example.com/resnet50.onnx"}
	}
	return value, nil
}

// SourceError is the error of a model that cannot be had from where a deployment says. The value shows no credential.
func SourceError(uri, why string) *Error {
	if u, err := source.Parse(uri); err == nil {
		uri = u.String()
	}
	return &Error{Key: InferModel, Value: uri, Why: why}
}

// checkSource refuses settings that a model from a URI cannot have.
func (in *Inference) checkSource() error {
	switch {
	case in.Source == "":
		return nil
	case !in.IsInference:
		return &Error{Key: SLOLatency, Why: InferModel + " names a model by its URI, and only a function with an objective serves a model", Example: "200ms"}
	case in.Auto:
		return SourceError(in.Source, "variants are not generated of a model that comes from a URI; put the model into the function's image for that")
	}
	return nil
}
