package plans

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

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/filelock/workdir"
	"github.com/faas-infer/faas-infer/instance/engines"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/cut"
	"github.com/faas-infer/faas-infer/papers/gillis/partition"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/bundles"
	"github.com/faas-infer/faas-infer/provider/children"
	"github.com/faas-infer/faas-infer/provider/control"
)

// Cutter finds the plans by which models are cut over several instances, and has them made by
// children of this program.
type Cutter struct {
	// dir has a directory for each model and each set of limits.
	dir    string
	models *children.Models
	log    zerolog.Logger
	jobs   bundles.Jobs
	// loading is how many times a part's size an instance takes beside partition.Overhead while
	// it loads the part, 1 if it maps what was prepared.
	loading float64
	// read has what was read of directories, by path.
	read sync.Map
	// files are models whose files need not be here, nil if all are. adopting is held while shared
	// plans are written.
	files    bundles.Files
	adopting sync.Mutex
	// shared has the plans of all replicas, nothing if there is one. used has the uses of functions
	// by name.
	shared bundles.Sharing
	used   sync.Map
	bundles.Background
}

// readPlans are the plans of a directory with this stamp.
type readPlans struct {
	stamp string
	files []string
	plans []*partition.Served
}

// podLoading is how many times a part's size a pod takes that cuts and loads it by itself: 2.7 for
// wide ResNets, which are the worst, 2 for resnet-101, 1.4 for rnn-2 (as it is charged to the cgroup).
const podLoading = 2.7

// New makes a cutter with the plans below a provider's directory. It reads a model's file only to make plans,
// or to find out whether it has some.
func New(o bundles.CutterOptions) *Cutter {
	c := &Cutter{
		dir: filepath.Join(o.State, plansDir), models: o.Models, log: o.Logger, loading: 1, shared: o.Shared, files: o.Files,
	}
	if o.Pods {
		c.loading = podLoading
	}
	return c
}

var _ bundles.Cutter = (*Cutter)(nil)

// hash is the hash of a model's file, which need not be here.
func (c *Cutter) hash(file string) (string, error) {
	if c.files != nil {
		if hash, _ := c.files.Known(file); hash != "" {
			return hash, nil
		}
	}
	return c.models.Hash(file)
}

// here brings a model's file to this machine.
func (c *Cutter) here(ctx context.Context, file string) error {
	if c.files == nil {
		return nil
	}
	return c.files.Here(ctx, file)
}

// plansDir is where plans are, below the provider's directory.
const plansDir = "plans"

// wanted is what a deployment asks of the plans of one of its models.
type wanted struct {
	control.Model
	// content is the model's hash. key identifies what is asked, dir is where the plans are. shared
	// is the key for all replicas, whatever their paths.
	content, key, dir, shared string

	arguments []string
}

// want returns what a function asks of the plans of a model.
func (c *Cutter) want(f *provider.Function, m control.Model) (w wanted, err error) {
	in := &f.Inference
	if engines.IsManifest(m.File) {
		return w, bundles.Uncuttable(f, "only an ONNX model without a handler can be cut, and this one runs beside its instance; it must be off")
	}
	hash, err := c.hash(m.File)
	if err != nil {
		return w, err
	}
	instances := cmp.Or(in.PartitionInstances, annotation.DefaultPartitionInstances)
	asked := []string{"--instances", strconv.Itoa(instances), "--max-batch", strconv.Itoa(in.MaxBatch), "--until", (in.SLO / 2).String()}
	if in.Limits.Memory > 0 {
		asked = append(asked, "--memory", strconv.FormatInt(c.held(in.Limits.Memory), 10))
	}
	w = wanted{Model: m, content: hash, arguments: append([]string{"model", "partition", m.File}, asked...)}
	w.shared = strings.Join(append(asked, hash, onnxruntime.Name(), c.models.Machine), " ")
	if c.models.Database != "" {
		w.arguments = append(w.arguments, "--database", c.models.Database)
	}
	sum := sha256.Sum256([]byte(strings.Join(append(w.arguments, hash, onnxruntime.Name(), c.models.Machine), "\n")))
	w.key = hex.EncodeToString(sum[:])
	w.dir = filepath.Join(c.dir, w.key[:32])
	return w, nil
}

// held is the memory for which to plan a member of a limit in bytes: less than the limit if the
// member takes more while it loads its parts.
func (c *Cutter) held(limit int64) int64 {
	return partition.Overhead + int64(float64(limit-partition.Overhead)/c.loading)
}

// plans returns a model's plans, and false if they are not made yet.
func (c *Cutter) plans(w wanted) (all []control.Model, made bool, err error) {
	now := time.Now()
	_ = os.Chtimes(w.dir, now, now) // There may be none.
	read, err := c.readDir(w)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if damaged := (*damagedError)(nil); errors.As(err, &damaged) {
		c.log.Warn().Err(err).Msg("a plan for cutting a model cannot be used; it is made again")
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	for i, s := range read.plans {
		m := w.Model
		m.File, m.From, m.Plan, m.Profile = read.files[i], w.Name, s.Plan, s.Profile
		if m.Name = s.Name; w.Name != cluster.Whole {
			m.Name = w.Name + "-" + s.Name
		}
		all = append(all, m)
	}
	return all, true, nil
}

// readDir reads a directory of plans, unless it was read before and has not changed since.
func (c *Cutter) readDir(w wanted) (*readPlans, error) {
	stamp, err := children.Stamp(w.dir)
	if err != nil {
		return nil, err
	}
	if known, ok := c.read.Load(w.dir); ok && known.(*readPlans).stamp == stamp {
		return known.(*readPlans), nil
	}
	files, err := filepath.Glob(filepath.Join(w.dir, "*"+bundle.CuttingSuffix))
	if err != nil {
		return nil, err
	}
	read := &readPlans{stamp: stamp, files: files}
	for _, file := range files {
		s, err := readServed(file, w.content)
		if err != nil {
			return nil, err
		}
		s.Profile.Memory = int64(max(1, c.loading/2) * float64(s.Profile.Memory)) // Twice that is the limit.
		read.plans = append(read.plans, s)
	}
	c.read.Store(w.dir, read)
	return read, nil
}

// damagedError says that a file is no plan of a model.
type damagedError struct {
	file string
	why  error
}

// Error names the file.
func (e *damagedError) Error() string { return fmt.Sprintf("%s: %v", e.file, e.why) }

// readServed reads the file of a plan. The model's content has this hash.
func readServed(file, content string) (*partition.Served, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	s := new(partition.Served)
	switch err := json.Unmarshal(text, s); {
	case err != nil:
		return nil, &damagedError{file, err}
	case s.Plan == nil || s.Profile == nil || s.Name == "":
		return nil, &damagedError{file, errors.New("it lacks the plan, its name or its times")}
	case s.Plan.Model != content:
		return nil, &damagedError{file, fmt.Errorf("it is of the model %.12s, and this one is %.12s", s.Plan.Model, content)}
	case s.Plan.Members != s.Profile.Parts:
		return nil, &damagedError{file, fmt.Errorf("it has %d members, and the times of %d", s.Plan.Members, s.Profile.Parts)}
	}
	if _, err := cut.ReadPlan(strings.NewReader(s.Plan.String())); err != nil {
		return nil, &damagedError{file, err}
	}
	if err := s.Profile.Validate(); err != nil {
		return nil, &damagedError{file, err}
	}
	return s, nil
}

// Write writes plans into a directory that appears with all of them. It does nothing if the directory
// is there.
func Write(dir string, served []*partition.Served) error {
	return workdir.Store{Dir: filepath.Dir(dir)}.Make(context.Background(), filepath.Base(dir), workdir.Exists, func(work string) error {
		for _, s := range served {
			text, err := json.MarshalIndent(s, "", "  ")
			if err != nil {
				return err
			}
			name := filepath.Join(work, s.Name+bundle.CuttingSuffix)
			if err := os.WriteFile(name, append(text, '\n'), 0o644); err != nil {
				return err
			}
		}
		return nil
	})
}

// make makes a model's plans, unless they are there, or the leader of several replicas will.
func (c *Cutter) make(ctx context.Context, w wanted, leaderWill bool) error {
	if _, made, err := c.plans(w); made || err != nil {
		if made {
			c.publish(w)
		}
		return err
	}
	if c.follow(ctx, w, leaderWill) {
		return nil
	}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return err
	}
	return c.jobs.Run(ctx, w.dir, w.key, func(ctx context.Context) error {
		if made, err := c.settle(w, true); made || err != nil {
			return err
		}
		if err := c.here(ctx, w.File); err != nil {
			return err
		}
		_, failed := c.models.Run(ctx, children.Background, filepath.Dir(w.File), append(slices.Clone(w.arguments), "--serve", w.dir)...)
		// The child fails also if adopt has written the directory meanwhile.
		made, err := c.settle(w, false)
		switch {
		case made:
			c.publish(w)
			return nil
		case failed != nil || err != nil:
			return cmp.Or(failed, err)
		}
		return fmt.Errorf("%s has changed while it was planned how to cut it", w.File)
	})
}

// settle reports whether there are plans, while no other function adopts some. If there are none and
// discard says so, it removes what is damaged.
func (c *Cutter) settle(w wanted, discard bool) (made bool, err error) {
	c.adopting.Lock()
	defer c.adopting.Unlock()
	if _, made, err = c.plans(w); made || err != nil || !discard {
		return made, err
	}
	return false, os.RemoveAll(w.dir)
}

// roomless returns an [annotation.Error] if some operator of the model is too large for one instance: no
// plan would help. Other errors say that this is not known.
func (c *Cutter) roomless(ctx context.Context, f *provider.Function, m control.Model) error {
	memory := c.held(f.Inference.Limits.Memory) - partition.Overhead
	if memory <= 0 {
		return &annotation.Error{Key: "limits.memory", Value: bundles.MemoryLimit(f), Why: fmt.Sprintf("an instance needs %d MiB beside its part of a model", partition.Overhead>>20)}
	}
	err := c.here(ctx, m.File)
	if err != nil {
		return err
	}
	// The published times of a platform take no measuring. Only the sizes matter.
	_, err = c.models.Run(ctx, children.Foreground, filepath.Dir(m.File), "model", "partition", m.File, "--platform", "lambda", "--memory", strconv.FormatInt(memory, 10), "--json")
	if err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	if wrong := c.models.CheckFile(ctx, m.File); wrong != nil {
		return wrong // The file is no model, and not its size is the reason.
	}
	return &annotation.Error{Key: "limits.memory", Value: bundles.MemoryLimit(f), Why: fmt.Sprintf("the model cannot be cut for it: %v, and %d MiB beside that", err, partition.Overhead>>20)}
}

// WithPlans adds the known plans of a function's models, and leaves out models that are too
// large for one instance. A model that would only load with luck is left out if it can be cut.
func (c *Cutter) WithPlans(ctx context.Context, f *provider.Function, models []control.Model) (all []control.Model, err error) {
	var uses []wanted
	defer func() { c.note(f, uses) }()
	for _, m := range models {
		bytes := bundles.WeightsOf(c.files, m)
		large := bundles.Oversized(f, bytes)
		// tight: an instance may exceed its memory while it loads the weights, or always.
		tight := bundles.Oversized(f, int64(float64(bytes)*c.loading))
		if f.Inference.Partition == "" {
			if large {
				return nil, bundles.TooLarge(f, bytes, "; raise it")
			}
			all = append(all, m)
			continue
		}
		w, err := c.want(f, m)
		if err != nil {
			return nil, err
		}
		uses = append(uses, w)
		plans, made, err := c.known(w)
		if err != nil {
			return nil, err
		}
		if tight && !made {
			err := c.roomless(ctx, f, m)
			if refused := (*annotation.Error)(nil); err != nil && (large || !errors.As(err, &refused)) {
				return nil, err
			}
			tight = err == nil // Otherwise no plan will come.
		}
		if large && made && len(plans) == 0 {
			return nil, bundles.TooLarge(f, bytes, ", and cannot be cut; raise it")
		}
		if !tight || made && len(plans) == 0 {
			all = append(all, m)
		}
		all = append(all, plans...)
	}
	return all, nil
}

// Make implements [bundles.Cutter]: it makes the plans of a function's models, with CPU time that nobody else wants. It does
// nothing for those that are made.
func (c *Cutter) Make(ctx context.Context, f *provider.Function, models []control.Model) error {
	return c.makeAll(ctx, f, models, true)
}

func (c *Cutter) makeAll(ctx context.Context, f *provider.Function, models []control.Model, leaderWill bool) error {
	for _, m := range models {
		if m.Plan != nil {
			continue
		}
		w, err := c.want(f, m)
		if err != nil {
			return err
		}
		if err := c.make(ctx, w, leaderWill); err != nil {
			return bundles.NotCut(err)
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
	if limit := f.Inference.Limits.Memory; limit > 0 && c.held(limit) <= partition.Overhead {
		return nil // No part fits.
	}
	as := *f
	as.Inference.Partition = annotation.PartitionAuto
	made := make(chan error, 1)
	if !c.Begin(func(life context.Context) {
		lasting, end := context.WithTimeout(life, suggestAfter)
		defer end()
		made <- c.makeAll(lasting, &as, models, false)
	}) {
		return nil
	}
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
