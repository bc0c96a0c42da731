// Package shadows measures bodies with shadows (AsyFunc, SoCC 2023) against one whole instance and
// two, with real processes of one core each. Begin with [Bench.Run].
package shadows

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/faas-infer/faas-infer/command/profile"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance/pair"
	"github.com/faas-infer/faas-infer/instance/upstream"
	"github.com/faas-infer/faas-infer/lab/rig"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/model/zoo"
	"github.com/faas-infer/faas-infer/shadow"
)

// Bench says what is measured.
type Bench struct {
	// Models are names of the zoo or ONNX files. Phi is the shadow's blocks, "" to choose them.
	Models []string
	Phi    string
	// Rows are those of a whole instance's batch, and the most that a shadow computes at once; a
	// pair's batch has half as many more.
	Rows int
	// Rounds measure all ways in turn, each for Each.
	Rounds int
	Each   time.Duration
	// Prepared is the directory of prepared models, "" for the user's cache.
	Prepared string
}

// reach is the part of two whole instances' rows per second that a chosen shadow must have by
// prediction; the measured ratio should be 0.9.
const reach = 0.94

// Run measures all models, the transport and the starts.
func (b Bench) Run(ctx context.Context, o rig.Options, r *report.Report) error {
	if err := transfer(ctx, r); err != nil {
		return fmt.Errorf("the transport: %w", err)
	}
	for i, name := range b.Models {
		s, err := b.subject(ctx, o, name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		err = s.measure(ctx, r, i == 0)
		s.close()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// subject is a model with its processes.
type subject struct {
	Bench
	o              rig.Options
	name, dir      string
	prepared       string
	phi            pair.Phi
	split          *shadow.Split // the predicted one of a pair's batch, nil without a profile
	processes      []*rig.Child
	inputs         map[int][]tensor.Tensor // by rows
	outputs        []tensor.Info
	model          *model.Model
	whole, twin    *client
	body           *client
	shadowProcess  *rig.Child
	wholeProcess   *rig.Child
	shadowRelay    string
	rowsPerBatch   int
	rowsPerPairing int
}

func (b Bench) subject(ctx context.Context, o rig.Options, name string) (*subject, error) {
	s := &subject{Bench: b, o: o, name: strings.TrimSuffix(filepath.Base(name), ".onnx"), inputs: make(map[int][]tensor.Tensor), rowsPerBatch: b.Rows, rowsPerPairing: b.Rows + b.Rows/2}
	var err error
	if s.dir, err = os.MkdirTemp("", "faas-infer-shadows-"); err != nil {
		return nil, err
	}
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
	return s, s.choose(ctx, file)
}

// choose takes the lightest Φ that reaches enough by prediction, or the one given.
func (s *subject) choose(ctx context.Context, file string) (err error) {
	if s.Phi != "" {
		s.phi, err = pair.ParsePhi(s.Phi)
		return err
	}
	fmt.Fprintf(s.o.Log, "%s: profiling its blocks\n", s.name)
	layers, err := (&profile.LayerOptions{Batches: []int{2, 4}, Threads: []int{1}, Prepared: s.Prepared}).Layers(ctx, file)
	if err != nil {
		return err
	}
	o := shadow.Options{Body: 1000, Shadow: 1000, MaxRows: s.rowsPerPairing, Partial: true, Transfer: shadow.Transfer{Fixed: 0.3, PerMiB: 0.1}, Reach: reach}
	p, found, err := shadow.Choose(layers.Model, o)
	if err != nil {
		return err
	}
	if !found {
		return errors.New("no shadow reaches enough by prediction; give --phi")
	}
	for _, r := range p.Phi {
		s.phi = append(s.phi, pair.Run{First: r.First, End: r.End})
	}
	s.split = &p.Splits[s.rowsPerPairing-1]
	fmt.Fprintf(s.o.Log, "%s: a shadow of the blocks %s, %.1f MiB of weights; a batch of %d rows is predicted every %.1f ms\n",
		s.name, s.phi, float64(p.Weights)/(1<<20), s.rowsPerPairing, s.split.Period)
	return nil
}

// client is an instance that is asked for inference.
type client struct {
	socket string
	over   *http.Transport
	*upstream.OpenInference
}

func (s *subject) socket(name string) string { return filepath.Join(s.dir, name) }

// start starts an instance on a core and waits until it is ready.
func (s *subject) start(ctx context.Context, name string, core int, arguments ...string) (*rig.Child, *client, error) {
	socket := s.socket(name)
	var c *rig.Child
	err := rig.RunOnCore(core, func() (err error) {
		c, err = s.o.Start(append([]string{"instance", "--name", rig.FunctionName, "--prepared", s.prepared, "--listen", "unix://" + socket}, arguments...)...)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	s.processes = append(s.processes, c)
	if err := c.AnswersOver(ctx, socket); err != nil {
		return nil, nil, err
	}
	over := upstream.NewTransport("unix", socket, 4)
	return c, &client{socket, over, upstream.NewPeer(over, rig.FunctionName)}, nil
}

func (s *subject) close() {
	for _, c := range []*client{s.whole, s.twin, s.body} {
		if c != nil {
			c.over.CloseIdleConnections()
		}
	}
	for _, p := range s.processes {
		p.Stop()
	}
	os.RemoveAll(s.dir)
}

// infer runs one batch.
func (s *subject) infer(ctx context.Context, c *client, rows int) ([]tensor.Tensor, error) {
	if s.outputs == nil {
		s.outputs = s.model.Outputs()
	}
	return c.Infer(ctx, rows, s.inputs[rows], s.outputs)
}

// way is one way to compute batches.
type way struct {
	name    string
	clients []*client // one stream of batches for each
	rows    int
	before  func(ctx context.Context) error
}

// pairWith orders the body to be paired.
func (s *subject) pairWith(synchronous bool) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		text, err := json.Marshal(pair.Order{Phi: s.phi.String(), Shadows: []pair.Address{{Network: "unix", Address: s.shadowRelay}}, Synchronous: synchronous})
		if err != nil {
			return err
		}
		client := &http.Client{Transport: s.body.over}
		r, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://instance"+pair.ShadowsPath, bytes.NewReader(text))
		if err != nil {
			return err
		}
		answer, err := client.Do(r)
		if err != nil {
			return err
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusNoContent {
			return fmt.Errorf("the body refuses the pair: %s", answer.Status)
		}
		for range 2000 {
			var status pair.Status
			_, text, err := rig.Get(ctx, client, "http://instance"+pair.ShadowsPath)
			if err == nil {
				err = json.Unmarshal(text, &status)
			}
			if err != nil {
				return err
			}
			if len(status.Shadows) == 1 && status.Shadows[0].State == "connected" {
				return nil
			}
			time.Sleep(time.Millisecond)
		}
		return errors.New("the body is not connected to its shadow")
	}
}

// measure measures one model.
func (s *subject) measure(ctx context.Context, r *report.Report, starts bool) error {
	for _, rows := range []int{s.rowsPerBatch, s.rowsPerPairing} {
		var err error
		if s.inputs[rows], err = s.model.SampleInputs(rows, 1); err != nil {
			return err
		}
	}
	most := fmt.Sprint(s.rowsPerPairing)
	s.shadowRelay = s.socket("relay")
	var err error
	if s.wholeProcess, s.whole, err = s.start(ctx, "whole", 0, "--max-batch", most); err != nil {
		return err
	}
	if _, s.twin, err = s.start(ctx, "twin", 1, "--max-batch", most); err != nil {
		return err
	}
	if _, s.body, err = s.start(ctx, "body", 0, "--max-batch", most, "--body", "--concurrency", "2"); err != nil {
		return err
	}
	if s.shadowProcess, _, err = s.start(ctx, "shadow", 1, "--max-batch", fmt.Sprint(s.rowsPerBatch), "--shadow", s.phi.String(), "--relay", "unix://"+s.shadowRelay); err != nil {
		return err
	}
	ways := []way{
		{"whole", []*client{s.whole}, s.rowsPerBatch, nil},
		{"twin", []*client{s.whole, s.twin}, s.rowsPerBatch, nil},
		{"synchronous", []*client{s.body}, s.rowsPerPairing, s.pairWith(true)},
		{"pair", []*client{s.body, s.body}, s.rowsPerPairing, s.pairWith(false)},
	}
	rates := make(map[string][]float64)
	for round := range s.Rounds {
		for _, w := range ways {
			rate, err := s.stream(ctx, w)
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			rates[w.name] = append(rates[w.name], rate)
			fmt.Fprintf(s.o.Log, "%s: round %d: %s %.2f rows/s\n", s.name, round+1, w.name, rate)
		}
	}
	s.report(r, rates)
	if err := s.counted(ctx, r); err != nil {
		return err
	}
	if err := s.difference(ctx, r); err != nil {
		return err
	}
	if err := s.memory(r); err != nil {
		return err
	}
	if starts {
		return s.starts(ctx, r)
	}
	return nil
}

// report adds the rates and their ratios. A round's ways are neighbours in time, so ratios are of
// rounds.
func (s *subject) report(r *report.Report, rates map[string][]float64) {
	ratio := func(a, b string) float64 {
		var all []float64
		for i := range rates[a] {
			all = append(all, rates[a][i]/rates[b][i])
		}
		return rig.Median(all)
	}
	for _, name := range []string{"whole", "twin", "synchronous", "pair"} {
		r.Add(s.name+".rows_per_s."+name, rig.Median(rates[name]), "1/s", "median of the rounds")
	}
	r.Add(s.name+".ratio.pair_over_twin", ratio("pair", "twin"), "", fmt.Sprintf("Φ is %s; the shadow begins the next batch meanwhile", s.phi))
	r.Add(s.name+".ratio.synchronous_over_twin", ratio("synchronous", "twin"), "", "the shadow waits (Eq. 6)")
	if s.split != nil {
		measured := 1000 * float64(s.rowsPerPairing) / rig.Median(rates["pair"])
		r.Add(s.name+".predicted_error_pct", 100*math.Abs(s.split.Period-measured)/measured, "%", fmt.Sprintf("%.1f ms predicted, %.1f measured for %d rows", s.split.Period, measured, s.rowsPerPairing))
	}
}

// counted adds the rows of Φ that the shadow computed, and the jobs that it did not deliver.
func (s *subject) counted(ctx context.Context, r *report.Report) error {
	_, text, err := rig.Get(ctx, &http.Client{Transport: s.body.over}, "http://instance/metrics")
	if err != nil {
		return err
	}
	sums := make(map[string]float64)
	for line := range strings.Lines(string(text)) {
		name, value, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "faas_infer_instance_shadow_"), " ")
		if n, err := strconv.ParseFloat(value, 64); ok && err == nil {
			kind, _, _ := strings.Cut(name, "{reason")
			sums[kind] += n
		}
	}
	body, shadow := sums[`rows_total{by="body"}`], sums[`rows_total{by="shadow"}`]
	r.Add(s.name+".shadow_rows_pct", 100*shadow/(body+shadow), "%", "rows of Φ that the shadow computed, both ways")
	r.Add(s.name+".fallbacks", sums["fallbacks_total"], "", "jobs that the body computed instead")
	return nil
}

// stream sends batches, one after the other on each client, and returns the rows per second.
func (s *subject) stream(ctx context.Context, w way) (float64, error) {
	if w.before != nil {
		if err := w.before(ctx); err != nil {
			return 0, err
		}
	}
	var rows atomic.Int64
	var streams sync.WaitGroup
	errs := make([]error, len(w.clients))
	var from, end atomic.Int64
	for i, c := range w.clients {
		streams.Go(func() {
			// The first batches warm the instance up and teach a pair its shares.
			for range 3 {
				if _, errs[i] = s.infer(ctx, c, w.rows); errs[i] != nil {
					return
				}
			}
			now := time.Now()
			from.CompareAndSwap(0, now.UnixNano())
			until := time.Unix(0, from.Load()).Add(s.Each)
			for time.Now().Before(until) {
				if _, errs[i] = s.infer(ctx, c, w.rows); errs[i] != nil {
					return
				}
				rows.Add(int64(w.rows))
				end.Store(max(end.Load(), time.Now().UnixNano()))
			}
		})
	}
	streams.Wait()
	return float64(rows.Load()) / (float64(end.Load()-from.Load()) / 1e9), errors.Join(errs...)
}

// difference compares the pair's answers with the whole model's.
func (s *subject) difference(ctx context.Context, r *report.Report) error {
	want, err := s.infer(ctx, s.whole, s.rowsPerPairing)
	if err != nil {
		return err
	}
	most := 0.0
	for range 3 {
		got, err := s.infer(ctx, s.body, s.rowsPerPairing)
		if err != nil {
			return err
		}
		for i := range want {
			if len(got[i].Data) != len(want[i].Data) {
				return fmt.Errorf("the pair's %q has %d bytes, not %d", want[i].Name, len(got[i].Data), len(want[i].Data))
			}
			for at := 0; want[i].Type == tensor.FP32 && at < len(want[i].Data); at += 4 {
				a := math.Float32frombits(binary.LittleEndian.Uint32(want[i].Data[at:]))
				b := math.Float32frombits(binary.LittleEndian.Uint32(got[i].Data[at:]))
				most = max(most, math.Abs(float64(a)-float64(b)))
			}
		}
	}
	r.Add(s.name+".max_difference", most, "", "between the pair's answers and the whole model's")
	return nil
}

// memory adds what the whole instance and the shadow have mapped and touched: as if each was alone
// on its node, with weights of its own.
func (s *subject) memory(r *report.Report) error {
	var mib [2]float64
	for i, p := range []*rig.Child{s.wholeProcess, s.shadowProcess} {
		held, err := rig.Mapped(p.Process.Pid)
		if err != nil {
			return err
		}
		mib[i] = held["Rss"]
	}
	note := fmt.Sprintf("resident with weights of its own, after batches of %d rows", s.rowsPerBatch)
	r.Add(s.name+".memory.whole_mib", mib[0], "MiB", note)
	r.Add(s.name+".memory.shadow_mib", mib[1], "MiB", note)
	r.Add(s.name+".memory.shadow_over_whole", mib[1]/mib[0], "", "")
	return nil
}
