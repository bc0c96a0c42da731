package shadows

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/faas-infer/faas-infer/instance/mutual"
	"github.com/faas-infer/faas-infer/instance/upstream"
	"github.com/faas-infer/faas-infer/lab/rig"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/model/zoo"
	"github.com/faas-infer/faas-infer/papers/asyfunc/layers"
	"github.com/faas-infer/faas-infer/papers/asyfunc/pair"
	"github.com/faas-infer/faas-infer/papers/asyfunc/pairing"
	"github.com/faas-infer/faas-infer/papers/asyfunc/shadow"
)

// core is the share of each process in millicores.
const core = 1000

// reach is the part of two whole instances' rows per second that a chosen shadow must have by
// prediction. The measured ratio should be 0.9, and predictions may be some per cent wrong.
const reach = 0.97

// subject is a model with its processes.
type subject struct {
	Bench
	o         rig.Options
	name, dir string
	// prepared is the prepared model, copied the same with weights of its own.
	prepared, copied string
	layers           *shadow.Model
	// margin is the safety margin of the whole model's predicted time, as a part of it.
	margin float64
	// division is the way to help a body that the provider would choose, nil if there is none; auto is its
	// name among the ways.
	division *pairing.Division
	auto     string
	// phi is what the shadow holds, nil if the model has no part for one; shadowPhi is the same.
	phi                                  pair.Phi
	shadowPhi                            shadow.Phi
	processes                            []*process
	inputs                               map[int][]tensor.Tensor // by rows
	outputs                              []tensor.Info
	model                                *model.Model
	whole, twin, elsewhere, body, helper *process
}

// pairRows are the rows of a pair's batch.
func (s *subject) pairRows() int { return s.Rows + s.Rows/2 }

func (b Bench) subject(ctx context.Context, o rig.Options, name string) (_ *subject, err error) {
	s := &subject{Bench: b, o: o, name: strings.TrimSuffix(filepath.Base(name), ".onnx"), inputs: make(map[int][]tensor.Tensor)}
	if s.dir, err = os.MkdirTemp("", "faas-infer-shadows-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	file := name
	if _, found := zoo.Find(name); found {
		m, err := zoo.Make(name, 1)
		if err != nil {
			return nil, err
		}
		file = filepath.Join(s.dir, "model.onnx")
		if err := m.WriteFile(file); err != nil {
			return nil, err
		}
	}
	if s.model, err = model.ReadFile(file); err != nil {
		return nil, err
	}
	if s.prepared, err = o.Models.Prepare(ctx, file); err != nil {
		return nil, err
	}
	// Beside the original: on another file system it would be other memory, perhaps.
	if s.copied, err = os.MkdirTemp(filepath.Dir(s.prepared), ".copy-"); err != nil {
		return nil, err
	}
	if err := os.CopyFS(s.copied, os.DirFS(s.prepared)); err != nil {
		return nil, err
	}
	for _, rows := range []int{s.Rows, s.pairRows()} {
		if s.inputs[rows], err = s.model.SampleInputs(rows, 1); err != nil {
			return nil, err
		}
	}
	s.outputs = s.model.Outputs()
	return s, s.choose(ctx, file)
}

// options are those of a pair's batch. Φ is one run: of several, two batches take turns at the shadow, and
// a short run waits for a long one of the other batch.
func (s *subject) options() shadow.Options {
	return shadow.Options{Runs: 1, Body: core, Shadow: core, MinRows: s.pairRows(), MaxRows: s.pairRows(), ShadowRows: s.Rows, Transfer: s.between, Partial: true}
}

// choose profiles the blocks and takes the lightest Φ that reaches enough by prediction, the one with
// the most rows per second if none does, or the one given.
func (s *subject) choose(ctx context.Context, file string) (err error) {
	fmt.Fprintf(s.o.Log, "%s: profiling its blocks\n", s.name)
	layers, err := (&layers.LayerOptions{Batches: []int{2, 4}, Threads: []int{1}, Database: s.Database, Prepared: filepath.Dir(s.prepared)}).Layers(ctx, file)
	if err != nil {
		return err
	}
	s.layers, s.margin = layers.Model, layers.Margin
	switch {
	case s.Phi != "":
		if s.phi, err = pair.ParsePhi(s.Phi); err != nil {
			return err
		}
		for _, r := range s.phi {
			s.shadowPhi = append(s.shadowPhi, shadow.Run{First: r.First, End: r.End})
		}
		return s.layers.CheckPhi(s.shadowPhi)
	case len(s.layers.Blocks) < 2:
		fmt.Fprintf(s.o.Log, "%s: it cannot be divided\n", s.name)
		return nil
	}
	o := s.options()
	o.Reach = reach
	p, found, err := shadow.Choose(s.layers, o)
	if err == nil && !found {
		o.Reach = 0
		p, _, err = shadow.Choose(s.layers, o)
	}
	if err != nil || len(p.Phi) == 0 {
		return err
	}
	s.shadowPhi, s.phi = p.Phi, runsOf(p.Phi)
	split := p.Splits[s.pairRows()-1]
	fmt.Fprintf(s.o.Log, "%s: a shadow of the blocks %s, %.1f MiB of weights; of %d rows it computes %d, and a batch is predicted every %.1f ms\n",
		s.name, s.phi, float64(p.Weights)/(1<<20), s.pairRows(), s.pairRows()-split.Body, split.Period)
	return nil
}

// runsOf is Φ as instances read it.
func runsOf(p shadow.Phi) (out pair.Phi) {
	for _, r := range p {
		out = append(out, pair.Run{First: r.First, End: r.End})
	}
	return out
}

// process is an instance that runs. Whole instances and bodies are asked for inference.
type process struct {
	*rig.Child
	over *http.Transport
	*upstream.OpenInference
	relay string // where a shadow's bodies connect
}

func (s *subject) socket(name string) string { return filepath.Join(s.dir, name) }

// start starts an instance of a prepared model on a core and waits until it is ready.
func (s *subject) start(ctx context.Context, name, prepared string, on int, arguments ...string) (*process, error) {
	socket := s.socket(name)
	p := &process{}
	err := rig.RunOnCore(on, func() (err error) {
		p.Child, err = s.o.Start(append(append([]string{"instance"}, arguments...), "--name", rig.FunctionName, "--prepared", prepared, "--listen", "unix://"+socket)...)
		return err
	})
	if err != nil {
		return nil, err
	}
	p.over = upstream.NewTransport((*mutual.Identity)(nil).Dial, "unix", socket, 4)
	p.OpenInference = upstream.NewPeer(p.over, rig.FunctionName)
	s.processes = append(s.processes, p)
	return p, p.AnswersOver(ctx, socket)
}

// startShadow starts a shadow that holds phi and takes jobs of up to rows, on the second core.
func (s *subject) startShadow(ctx context.Context, name string, phi pair.Phi, rows int) (*process, error) {
	relay := s.socket(name + ".relay")
	p, err := s.start(ctx, name, s.prepared, 1, "shadow", "--max-batch", fmt.Sprint(rows), "--shadow", phi.String(), "--relay", "unix://"+relay)
	if err != nil {
		return nil, err
	}
	p.relay = relay
	return p, nil
}

func (s *subject) close() {
	for _, p := range s.processes {
		p.over.CloseIdleConnections()
		p.Stop()
	}
	os.RemoveAll(s.dir)
	os.RemoveAll(s.copied)
}

// infer runs one batch.
func (s *subject) infer(ctx context.Context, p *process, rows int) ([]tensor.Tensor, error) {
	return p.Infer(ctx, rows, s.inputs[rows], s.outputs)
}
