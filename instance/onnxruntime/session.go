package onnxruntime

import (
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"strings"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/faas-infer/faas-infer/model/adapt"
)

// setting is one entry of a session's configuration.
type setting struct{ key, value string }

// waiting are the settings of every session that say how its threads wait. Between two operators of a run they spin: of a
// model of texts with 16 tokens, two threads then take 4.4 to 5.1 ms, and otherwise 5.6 to 5.9 ms with as much CPU time,
// because sleeping and waking takes longer than these waits. Between two runs they must not spin: instances share their
// cores, and that costs up to 20 ms of CPU per request.
//
// Whether denormal numbers count as zero is up to the model, see [signature].
var waiting = []setting{
	{"session.intra_op.allow_spinning", "1"},
	{"session.force_spinning_stop", "1"},
}

// newOptions returns the options of a session with its own threads. The caller
// destroys them.
func newOptions(threads int, level ort.GraphOptimizationLevel, settings ...setting) (*ort.SessionOptions, error) {
	o, err := ort.NewSessionOptions()
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		o.SetIntraOpNumThreads(threads),
		o.SetInterOpNumThreads(1),
		o.SetExecutionMode(ort.ExecutionModeSequential),
		o.SetGraphOptimizationLevel(level),
	)
	for _, s := range append(waiting[:len(waiting):len(waiting)], settings...) {
		err = errors.Join(err, o.AddSessionConfigEntry(s.key, s.value))
	}
	if err != nil {
		o.Destroy()
		return nil, fmt.Errorf("session options: %w", err)
	}
	return o, nil
}

// newSession loads a model from its file, or from its bytes.
func newSession(f form, options *ort.SessionOptions) (*ort.DynamicAdvancedSession, error) {
	defer f.signature.denormals()()
	inputs := make([]string, len(f.signature.Inputs))
	for i, in := range f.signature.Inputs {
		inputs[i] = adapt.InsideInput(in)
	}
	outputs := make([]string, len(f.signature.Outputs))
	for i, out := range f.signature.Outputs {
		outputs[i] = adapt.InsideOutput(out, f.signature.wide(i))
	}
	var session *ort.DynamicAdvancedSession
	var err error
	if f.data != nil {
		session, err = ort.NewDynamicAdvancedSessionWithONNXData(f.data, inputs, outputs, options)
	} else {
		session, err = ort.NewDynamicAdvancedSession(f.path, inputs, outputs, options)
	}
	if err != nil {
		return nil, plain(err)
	}
	return session, nil
}

// denormals makes the goroutine's thread treat denormal numbers as the model's sessions do,
// until restore is called: as zero, unless it has an operator that jumps there. ONNX Runtime sets this for its own threads and for the
// thread that creates a session. That has two faults. It leaves the creating thread
// changed, on which another goroutine may run next. And a session of one thread
// computes on the calling thread, which may be a different one.
func (s signature) denormals() (restore func()) {
	if s.Denormals {
		return func() {}
	}
	runtime.LockOSThread()
	before := flushDenormals()
	return func() {
		restoreDenormals(before)
		runtime.UnlockOSThread()
	}
}

// plain shortens an error of the binding to ONNX Runtime's own message, without the
// place in ONNX Runtime's source.
func plain(err error) error {
	if err == nil {
		return nil
	}
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			break
		}
		err = inner
	}
	said := adapt.Outside(sourceLine.ReplaceAllString(err.Error(), ""))
	said = "ONNX Runtime: " + strings.Join(strings.Fields(said), " ")
	if lacking.MatchString(said) {
		said += "; export the model with operators and types that ONNX Runtime has for CPUs (in float32, or with another opset), or use a handler (template python-infer)"
	}
	return errors.New(said)
}

// lacking matches what ONNX Runtime says of an operator that it does not have, for its type or
// version.
var lacking = regexp.MustCompile(`Could not find an implementation|is not a registered function/op|No Op registered`)

// sourceLine matches "/onnxruntime_src/…/bfc_arena.cc:360 void* Function(int) ".
var sourceLine = regexp.MustCompile(`/\S+\.(cc|h|cpp):\d+ [^()]*\([^()]*\)( const)? `)
