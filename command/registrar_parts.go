package command

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/command/partitioning"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance/engines"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/control"
)

// Cutter finds the plans by which models are cut over several instances, and has them made by
// children of this program.
type Cutter struct {
	// dir has a directory for each model and each set of limits.
	dir     string
	models  *childModels
	makings makings
	// loading is how many times a part's size an instance takes while it loads the part, 1 if
	// it maps what was prepared.
	loading float64
	// read has the plans of a directory that was read: []control.Model by path.
	read sync.Map
}

// podLoading is how many times a part's size a pod takes that cuts and loads it by itself.
const podLoading = 2.7

// Cutter makes a cutter for instances that cut their parts out of their own images.
func (f *ProviderFlags) Cutter() *Cutter {
	return &Cutter{dir: filepath.Join(f.state, plansDir), models: f.childModels(), loading: podLoading}
}

// plansDir is where plans are, below the provider's directory.
const plansDir = "plans"

// wanted is what a deployment asks of the plans of one of its models.
type wanted struct {
	control.Model
	// key identifies it, dir is where its plans are.
	key, dir  string
	arguments []string
}

// want returns what a function asks of the plans of a model.
func (c *Cutter) want(f *provider.Function, m control.Model) (w wanted, err error) {
	in := &f.Inference
	if engines.IsManifest(m.File) {
		return w, &annotation.Error{Key: annotation.InferPartition, Value: in.Partition, Why: "only an ONNX model without a handler can be cut, and this one runs beside its instance; it must be off"}
	}
	hash, err := c.models.Hash(m.File)
	if err != nil {
		return w, err
	}
	instances := cmp.Or(in.PartitionInstances, annotation.DefaultPartitionInstances)
	w = wanted{Model: m, arguments: []string{
		"model", "partition", m.File, "--instances", strconv.Itoa(instances), "--max-batch", strconv.Itoa(in.MaxBatch), "--until", (in.SLO / 2).String(),
	}}
	if in.Limits.Memory > 0 {
		w.arguments = append(w.arguments, "--memory", strconv.FormatInt(c.held(in.Limits.Memory), 10))
	}
	if c.models.database != "" {
		w.arguments = append(w.arguments, "--database", c.models.database)
	}
	sum := sha256.Sum256([]byte(strings.Join(append(w.arguments, hash, onnxruntime.Name(), report.Machine()), "\n")))
	w.key = hex.EncodeToString(sum[:])
	w.dir = filepath.Join(c.dir, w.key[:32])
	return w, nil
}

// held is what of an instance's memory its parts may be.
func (c *Cutter) held(limit int64) int64 { return int64(float64(limit) / c.loading) }

// plans returns a model's plans, and false if they are not made yet.
func (c *Cutter) plans(w wanted) (all []control.Model, made bool, err error) {
	if known, ok := c.read.Load(w.dir); ok {
		return known.([]control.Model), true, nil
	}
	files, err := os.ReadDir(w.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	for _, file := range files {
		path := filepath.Join(w.dir, file.Name())
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, false, err
		}
		var s partitioning.Served
		if err := json.Unmarshal(text, &s); err != nil {
			return nil, false, fmt.Errorf("%s: %w; remove its directory", path, err)
		}
		m := w.Model
		m.File, m.From, m.Plan, m.Profile = path, w.Name, s.Plan, s.Profile
		m.Profile.Memory = int64(max(1, c.loading/2) * float64(m.Profile.Memory)) // Twice that is the limit.
		if m.Name = s.Name; w.Name != cluster.Whole {
			m.Name = w.Name + "-" + s.Name
		}
		all = append(all, m)
	}
	c.read.Store(w.dir, all)
	return all, true, nil
}

// make makes a model's plans, unless they are there.
func (c *Cutter) make(ctx context.Context, weight weight, w wanted) error {
	if _, made, err := c.plans(w); made || err != nil {
		return err
	}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return err
	}
	return c.makings.run(ctx, w.dir, w.key, func(ctx context.Context) error {
		if _, made, err := c.plans(w); made || err != nil {
			return err
		}
		_, err := c.models.run(ctx, weight, nil, append(slices.Clone(w.arguments), "--serve", w.dir)...)
		return err
	})
}

// roomless returns an error if some operator of the model is too large for one instance: no
// plan would help.
func (c *Cutter) roomless(ctx context.Context, f *provider.Function, m control.Model) error {
	memory := c.held(f.Inference.Limits.Memory) - partitioning.Overhead
	if memory <= 0 {
		return &annotation.Error{Key: "limits.memory", Value: limitOf(f), Why: fmt.Sprintf("an instance needs %d MiB beside its part of a model", partitioning.Overhead>>20)}
	}
	// The published times of a platform take no measuring. Only the sizes matter.
	_, err := c.models.run(ctx, foreground, nil, "model", "partition", m.File, "--platform", "lambda", "--memory", strconv.FormatInt(memory, 10), "--json")
	if err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	return &annotation.Error{Key: "limits.memory", Value: limitOf(f), Why: fmt.Sprintf("the model cannot be cut for it: %v, and %d MiB beside that", err, partitioning.Overhead>>20)}
}

func limitOf(f *provider.Function) string {
	if f.Deployment.Limits == nil {
		return ""
	}
	return f.Deployment.Limits.Memory
}

// oversized reports whether the weights of an ONNX model alone exceed an instance's memory.
func oversized(f *provider.Function, m control.Model) (bytes int64, is bool) {
	if f.Inference.Limits.Memory == 0 || engines.IsManifest(m.File) {
		return 0, false
	}
	for _, file := range []string{m.File, m.File + ".data"} {
		if info, err := os.Stat(file); err == nil {
			bytes += info.Size()
		}
	}
	return bytes, bytes > f.Inference.Limits.Memory
}

// WithPlans adds the known plans of a function's models, and leaves out models that are too
// large for one instance.
func (c *Cutter) WithPlans(ctx context.Context, f *provider.Function, models []control.Model) (all []control.Model, err error) {
	for _, m := range models {
		bytes, large := oversized(f, m)
		if f.Inference.Partition == "" {
			if large {
				return nil, &annotation.Error{Key: "limits.memory", Value: limitOf(f), Why: fmt.Sprintf("the model has %d MiB of weights; raise it", bytes>>20)}
			}
			all = append(all, m)
			continue
		}
		w, err := c.want(f, m)
		if err != nil {
			return nil, err
		}
		plans, made, err := c.plans(w)
		if err != nil {
			return nil, err
		}
		if large && !made {
			if err := c.roomless(ctx, f, m); err != nil {
				return nil, err
			}
		}
		if !large {
			all = append(all, m)
		}
		all = append(all, plans...)
	}
	return all, nil
}

// Make makes the plans of a function's models, with CPU time that nobody else wants. It does
// nothing for those that are made.
func (c *Cutter) Make(ctx context.Context, f *provider.Function, models []control.Model) error {
	return c.makeAll(ctx, background, f, models)
}

// makeAll makes the plans of a function's models.
func (c *Cutter) makeAll(ctx context.Context, weight weight, f *provider.Function, models []control.Model) error {
	for _, m := range models {
		if m.Plan != nil {
			continue
		}
		w, err := c.want(f, m)
		if err != nil {
			return err
		}
		if err := c.make(ctx, weight, w); err != nil {
			return fmt.Errorf("%s: %w", annotation.InferPartition, err)
		}
	}
	return nil
}

// suggestWithin is how long a refusal waits for the plans of a model that it does not cut;
// suggestAfter how long they are made after that, for the next deployment.
const (
	suggestWithin = 10 * time.Second
	suggestAfter  = 10 * time.Minute
)

// Suggestions returns the plans of a function's models as if it could be cut, as far as they
// are known within suggestWithin.
func (c *Cutter) Suggestions(ctx context.Context, f *provider.Function, models []control.Model) (all []control.Model) {
	as := *f
	as.Inference.Partition = annotation.PartitionAuto
	made := make(chan error, 1)
	lasting, end := context.WithTimeout(context.WithoutCancel(ctx), suggestAfter)
	go func() {
		defer end()
		made <- c.makeAll(lasting, background, &as, models)
	}()
	select {
	case err := <-made:
		if err != nil {
			return nil
		}
	case <-ctx.Done():
		return nil
	case <-time.After(suggestWithin):
		return nil
	}
	for _, m := range models {
		w, err := c.want(&as, m)
		if err != nil {
			return nil
		}
		plans, _, _ := c.plans(w)
		all = append(all, plans...)
	}
	slices.SortStableFunc(all, func(a, b control.Model) int {
		return cmp.Compare(a.Profile.Measurements[0].Median, b.Profile.Measurements[0].Median)
	})
	return all
}
