package cuda

/*
#include "session.h"
#include <stdlib.h>
*/
import "C"

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// describe reads the model's inputs and outputs from its first session.
func (e *Engine) describe(l *lane) (err error) {
	if e.inputs, err = l.ports("input", 0); err != nil {
		return err
	}
	if e.outputs, err = l.ports("output", 1); err != nil {
		return err
	}
	on := make([]C.int, len(e.inputs))
	if err := failed(C.session_places(l.c, &on[0], C.size_t(len(on)))); err != nil {
		return err
	}
	e.onHost = make([]bool, len(on))
	for i := range on {
		e.onHost[i] = on[i] != 0 && !e.options.onHost
	}
	return nil
}

// ports reads the model's inputs or outputs from the session and checks that instances can
// serve them. The error wraps [model.ErrNoBatch] if there is no batch dimension.
func (l *lane) ports(kind string, output C.int) ([]tensor.Info, error) {
	n := C.session_ports(l.c, output)
	if n == 0 {
		return nil, fmt.Errorf("the model has no %s", kind)
	}
	var all []tensor.Info
	for i := range n {
		var p C.port
		err := failed(C.session_port(l.c, output, i, &p))
		name := C.GoString(p.name)
		C.free(unsafe.Pointer(p.name))
		if err != nil {
			return nil, fmt.Errorf("%s %q: %w", kind, name, err)
		}
		t, ok := typeOf(p._type)
		if !ok {
			return nil, fmt.Errorf("%s %q has elements of the type %d, which requests cannot carry", kind, name, int(p._type))
		}
		shape := shapeFrom(&p)
		if len(shape) == 0 || shape[0] >= 0 {
			return nil, fmt.Errorf("%w: %s %q has the shape %v, its first dimension must be dynamic", model.ErrNoBatch, kind, name, shape)
		}
		all = append(all, tensor.Info{Name: name, Type: t, Shape: shape})
	}
	return all, nil
}

// shapeFrom returns a shape, with -1 for dynamic dimensions.
func shapeFrom(p *C.port) []int64 {
	shape := make([]int64, p.dimensions)
	for d := range shape {
		shape[d] = max(int64(p.shape[d]), -1)
	}
	return shape
}

// static says which input or output has an unknown shape, "" if none has.
func (e *Engine) static() string {
	if name, ok := static(e.inputs); !ok {
		return fmt.Sprintf("input %q has dynamic dimensions", name)
	}
	if name, ok := static(e.outputs); !ok {
		return fmt.Sprintf("output %q has dynamic dimensions", name)
	}
	return ""
}

// plans reports whether the model has operators whose kernels belong to one batch size. ONNX
// Runtime keeps one plan of cuDNN for each convolution, for the shape that came last. The next
// shape replaces it, which takes milliseconds, and ends kernels that cuDNN compiled for it, such
// as those of depthwise convolutions. A graph of an earlier shape that launches them crashes.
// A model that cannot be read here has them, to be safe.
func plans(file string) bool {
	m, err := model.ReadOutline(file)
	if err != nil {
		return true
	}
	p := m.Proto()
	for _, f := range p.GetFunctions() {
		if convolves(f.GetNode()) {
			return true
		}
	}
	return convolves(p.GetGraph().GetNode())
}

// convolution are the operators with plans.
var convolution = []string{"Conv", "ConvTranspose", "FusedConv", "NhwcConv"}

func convolves(nodes []*onnxpb.NodeProto) bool {
	return slices.ContainsFunc(nodes, func(n *onnxpb.NodeProto) bool {
		return slices.Contains(convolution, n.GetOpType()) || slices.ContainsFunc(n.GetAttribute(), func(a *onnxpb.AttributeProto) bool {
			return convolves(a.GetG().GetNode()) || slices.ContainsFunc(a.GetGraphs(), func(g *onnxpb.GraphProto) bool { return convolves(g.GetNode()) })
		})
	})
}
