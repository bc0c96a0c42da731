package flow

import (
	"fmt"
	"strconv"
	"strings"

	pb "github.com/faas-infer/faas-infer/model/savedmodel/tensorflowpb"
)

// frame is one call of a function, or the graph itself.
type frame struct {
	*function
	caller *frame
	call   *pb.NodeDef
	depth  int
	inner  map[*pb.NodeDef]*frame
}

// place is a tensor's name where it is read.
type place struct {
	frame *frame
	name  string
}

// passing are the operators whose output is their input of the same number.
// A variable is read where it is used, so reading one is nothing by itself.
var passing = map[string]bool{
	"Identity": true, "IdentityN": true, "StopGradient": true, "PreventGradient": true, "Snapshot": true,
	"ReadVariableOp": true, "PlaceholderWithDefault": true, "EnsureShape": true, "RefIdentity": true,
}

// resolve follows a tensor's name through what passes it on, calls and returns
// to the node that computes it.
func (r *reach) resolve(at place) (Ref, error) {
	var way []place
	for {
		if ref, ok := r.known[at]; ok {
			for _, p := range way {
				r.known[p] = ref
			}
			return ref, nil
		}
		if len(way) > maxNodes {
			return Ref{}, fmt.Errorf("%q is read from itself; the file is damaged", at.name)
		}
		way = append(way, at)
		next, ref, err := r.step(at)
		if err != nil {
			return Ref{}, err
		}
		if ref.Node != nil {
			r.known[at] = ref
		}
		at = next
	}
}

// step goes one node back from where a tensor is read: to another place, or to
// the node that computes it.
func (r *reach) step(at place) (place, Ref, error) {
	f := at.frame
	arg, _, _ := strings.Cut(at.name, ":")
	if i, ok := f.args[arg]; ok {
		if f.caller == nil {
			return at, Ref{Node: r.graph.Args[i]}, nil
		}
		in, err := input(f.call, i)
		return place{f.caller, in}, Ref{}, err
	}
	node, i, err := r.parse(f, at.name)
	if err != nil {
		return at, Ref{}, err
	}
	if fed, ok := r.fed[feed{node, i}]; ok && f.caller == nil {
		return at, Ref{Node: fed}, nil
	}
	if passing[node.GetOp()] {
		in, err := input(node, i)
		return place{f, in}, Ref{}, err
	}
	called, err := r.library.called(node)
	if err != nil {
		return at, Ref{}, err
	}
	if called == nil {
		n, err := r.node(f, node)
		return at, Ref{n, i}, err
	}
	return r.enter(f, node, called, i)
}

// enter goes from a call's output to where the function returns it.
func (r *reach) enter(f *frame, call *pb.NodeDef, called *function, output int) (place, Ref, error) {
	inside, ok := f.inner[call]
	if !ok {
		r.frames++
		if r.frames > maxFrames || f.depth >= maxDepth {
			return place{}, Ref{}, fmt.Errorf("node %q calls functions that call others more than %d deep or %d times", call.GetName(), maxDepth, maxFrames)
		}
		inside = &frame{
			function: called, caller: f, call: call, depth: f.depth + 1, inner: make(map[*pb.NodeDef]*frame),
		}
		f.inner[call] = inside
	}
	results := called.def.GetSignature().GetOutputArg()
	if output >= len(results) {
		return place{}, Ref{}, fmt.Errorf("node %q has no output %d; the file is damaged", call.GetName(), output)
	}
	name, ok := called.def.GetRet()[results[output].GetName()]
	if !ok {
		return place{}, Ref{}, fmt.Errorf("function %q does not return %q; the file is damaged", called.def.GetSignature().GetName(), results[output].GetName())
	}
	return place{inside, name}, Ref{}, nil
}

// parse splits a tensor's name into its node and the number of the output:
// "node:1" in a graph, "node:output:1" in a function.
func (r *reach) parse(f *frame, tensor string) (*pb.NodeDef, int, error) {
	parts := strings.Split(tensor, ":")
	node, ok := f.nodes[parts[0]]
	if !ok {
		return nil, 0, fmt.Errorf("%q is read, and there is no such node in %s; the file is damaged", tensor, f.describe())
	}
	number, named := 0, ""
	var err error
	switch {
	case len(parts) == 2 && f.def == nil:
		number, err = strconv.Atoi(parts[1])
	case len(parts) == 2:
		named = parts[1]
	case len(parts) == 3 && f.def != nil:
		named = parts[1]
		number, err = strconv.Atoi(parts[2])
	case len(parts) != 1:
		err = strconv.ErrSyntax
	}
	if err == nil && number >= 0 && number < maxOutputs && named != "" {
		number, err = r.library.output(node, named, number)
	}
	if err != nil || number < 0 || number >= maxOutputs {
		return nil, 0, fmt.Errorf("%q in %s does not name an output of node %q; the file is damaged", tensor, f.describe(), parts[0])
	}
	return node, number, nil
}

func (f *frame) describe() string {
	if f.def == nil {
		return "the graph"
	}
	return fmt.Sprintf("function %q", f.def.GetSignature().GetName())
}

// input is the name of input i of a node; those that only order the execution
// ("^node") do not count.
func input(n *pb.NodeDef, i int) (string, error) {
	if all := inputs(n); i < len(all) {
		return all[i], nil
	}
	return "", fmt.Errorf("node %q (%s) lacks input %d; the file is damaged", n.GetName(), n.GetOp(), i)
}

// inputs are those before the first that only orders the execution.
func inputs(n *pb.NodeDef) []string {
	for i, name := range n.GetInput() {
		if strings.HasPrefix(name, "^") {
			return n.GetInput()[:i]
		}
	}
	return n.GetInput()
}
