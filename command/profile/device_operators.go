package profile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/command/profile/shares"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/zoo"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/cop"
	"github.com/faas-infer/faas-infer/profiler/database"
	"github.com/faas-infer/faas-infer/profiler/measuring"
	"github.com/faas-infer/faas-infer/profiler/operator"
	"github.com/faas-infer/faas-infer/profiler/regression"
)

// deviceGraphs writes the graphs of models as a GPU runs them into dir, and returns the files.
func deviceGraphs(ctx context.Context, args []string, dir string) (files []string, err error) {
	if len(args) == 0 {
		args = SubjectTable()
	}
	bar := report.ProgressBar(os.Stderr, "reading models")
	for i, a := range args {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		bar(i, len(args))
		file := a
		if z, ok := zoo.Find(a); ok {
			m, err := zoo.Make(z.Name, 1)
			if err != nil {
				return nil, err
			}
			file = filepath.Join(dir, z.Name+".onnx")
			if err := m.WriteFile(file); err != nil {
				return nil, err
			}
		}
		to := filepath.Join(dir, fmt.Sprintf("graph-%d.onnx", i))
		if err := onnxruntime.SaveExtended(file, to); err != nil {
			return nil, fmt.Errorf("%s: %w", a, err)
		}
		files = append(files, to)
	}
	bar(len(args), len(args))
	return files, nil
}

// runDevice measures operators on shares of a GPU.
func (o *operatorsOptions) runDevice(ctx context.Context, args []string, out io.Writer) (err error) {
	if err := onnxruntime.Load(""); err != nil {
		return err
	}
	began := time.Now()
	dir, err := os.MkdirTemp("", "faas-infer-profile-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	card, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, card.Close()) }()
	graphs, err := deviceGraphs(ctx, args, dir)
	if err != nil {
		return err
	}
	path, err := DatabasePath(o.database)
	if err != nil {
		return err
	}
	file, err := OpenOperators(path)
	if err != nil {
		return err
	}
	defer file.Close()
	w := shares.OperatorsWork{Graphs: graphs, Shares: o.Shares, Batches: o.batches, Database: path}
	if len(w.Batches) == 0 {
		w.Batches = BatchesUpTo(o.maxBatch)
	}
	if o.again {
		w.Database = ""
	}
	rows, unmeasured := 0, map[string]bool{}
	err = card.Operators(ctx, w, func(r shares.OperatorsResult) error {
		rows += len(r.Rows)
		for _, why := range r.Unmeasured {
			unmeasured[why] = true
		}
		if o.Timings {
			fmt.Fprintln(os.Stderr, r.Spent)
		}
		return errors.Join(file.Append(r.Rows...), file.Sync())
	}, report.ProgressBar(os.Stderr, "measuring operators on shares of "+card.Machine()))
	if err != nil {
		return err
	}
	for why := range unmeasured {
		fmt.Fprintln(os.Stderr, "not measured:", why)
	}
	r := report.New("profile operators", time.Now())
	r.Machine = card.Machine()
	r.Add("operators.models", float64(len(graphs)), "", "")
	r.Add("operators.rows", float64(rows), "", "measured now")
	r.Add("operators.unmeasured", float64(len(unmeasured)), "", "operators that cannot run alone on the GPU")
	r.Add("operators.seconds", time.Since(began).Seconds(), "s", "with reading the models")
	if o.json {
		return r.JSON(out)
	}
	return r.Table(out)
}

const (
	// contextBytes is what a process holds of a GPU besides its model: the context and the
	// kernels of CUDA's libraries. hostBytes is what these take of the host. Both are
	// estimates for models that are predicted; measured profiles have their own.
	contextBytes = 700 << 20
	hostBytes    = 1 << 30
)

// predictOnDevice predicts the model's times on every measured share of a GPU. change may modify
// the options.
func predictOnDevice(db *database.Database, gpuName string, g *operator.Graph, batches []int, change func(*cop.Options)) (*profiler.Profile, error) {
	times := regression.NewShares(db.Rows(shares.EngineName(), gpuName))
	measured := times.Measured()
	if len(measured) == 0 {
		return nil, fmt.Errorf("%sthe database has no operators of %s%s", Unpredictable, gpuName, otherGPUs(db))
	}
	if len(g.Unknown) > 0 {
		return nil, fmt.Errorf("%sthe cost of its operators %s %w", Unpredictable, strings.Join(g.Unknown, ", "), ErrUnknown)
	}
	var all *profiler.Profile
	for _, gpu := range measured {
		options := cop.Options{
			Batches: batches, Threads: []int{1}, GPU: gpu, Engine: cop.ONNXRuntime,
			Run: measuring.Run(g), In: measuring.CopyIn(g), Out: measuring.CopyOut(g),
		}
		change(&options)
		p, err := cop.Predict(g, times.On(gpu), options)
		if err != nil {
			return nil, err
		}
		if Unsure(p) {
			return nil, fmt.Errorf("%s%w on %s", Unpredictable, errUnsure, gpuName)
		}
		one, err := p.Profile("", shares.EngineName(), gpuName, hostBytes+2*g.WeightBytes(), time.Now())
		if err != nil {
			return nil, err
		}
		for i := range one.Measurements {
			m := &one.Measurements[i]
			m.DeviceMemory = contextBytes + g.WeightBytes() + 2*g.ActivationBytes(m.Batch)
		}
		if all == nil {
			all = one
		} else {
			all.Measurements = append(all.Measurements, one.Measurements...)
		}
	}
	return all, nil
}

// otherGPUs lists, as the end of a sentence, the GPUs of which a database has operators: a name may differ
// in its driver only.
func otherGPUs(db *database.Database) string {
	var names []string
	for _, m := range db.Machines() {
		if m.Engine == shares.EngineName() {
			names = append(names, m.Machine)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return ", only of " + strings.Join(names, "; ")
}

// onDevice predicts a model on the GPU that the options name.
func (o *PredictOptions) onDevice(ctx context.Context, file string) (*profiler.Profile, error) {
	if err := onnxruntime.Load(""); err != nil {
		return nil, err
	}
	hash, err := model.ContentHash(file)
	if err != nil {
		return nil, err
	}
	path, err := DatabasePath(o.Database)
	if err != nil {
		return nil, err
	}
	opened, err := OpenOperators(path)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	dir, err := os.MkdirTemp("", "faas-infer-profile-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	graphs, err := deviceGraphs(ctx, []string{file}, dir)
	if err != nil {
		return nil, err
	}
	g, err := readOperators(graphs[0], o.Shapes)
	if err != nil {
		return nil, fmt.Errorf("%s%s: %w", Unpredictable, file, err)
	}
	p, err := predictOnDevice(opened.Database(), o.GPUName, g, BatchesUpTo(o.MaxBatch), o.combine)
	if err == nil {
		p.Model, p.Longest = hash, o.Longest
	}
	return p, err
}
