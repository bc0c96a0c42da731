package gillis

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/faas-infer/faas-infer/command/instances"
	"github.com/faas-infer/faas-infer/command/profile"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/papers/gillis/partition"
	"github.com/faas-infer/faas-infer/papers/gillis/partitioning"
	"github.com/faas-infer/faas-infer/papers/gillis/plans"
	"github.com/faas-infer/faas-infer/provider/annotation"
)

// validateServe checks the flags of --serve.
func (o *partitionOptions) validateServe() error {
	switch {
	case o.serve == "" && (o.instances != 0 || o.maxBatch != 0 || o.until != 0):
		return errors.New("--instances, --max-batch and --until are of no use without --serve")
	case o.serve == "":
		return nil
	case o.goal != "latency" || o.platform != partitioning.Local || o.out != "" || o.check || o.functions != 0:
		return errors.New("--serve goes with --memory, --instances, --max-batch, --until and --percentile only")
	case o.instances < 1 || o.instances > annotation.MostPartitionInstances:
		return fmt.Errorf("--instances is %d: --serve needs a number from 1 to %d", o.instances, annotation.MostPartitionInstances)
	case o.maxBatch < 1 || o.maxBatch > annotation.LargestBatch:
		return fmt.Errorf("--max-batch is %d: --serve needs a number from 1 to %d", o.maxBatch, annotation.LargestBatch)
	case o.until < 0:
		return fmt.Errorf("--until is %v: it must not be negative", o.until)
	}
	return nil
}

// writeServed plans for every number of parts at once, and writes each plan that fits and is
// unlike the ones before into the new directory of --serve. If none fits, the error says why.
func (o *partitionOptions) writeServed(ctx context.Context, m *model.Model, file string, p *partition.Platform) (err error) {
	if file == "" {
		return errors.New("--serve needs a file or a bundle: instances read the model from there")
	}
	if _, err := os.Lstat(o.serve); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(fmt.Errorf("--serve must be a new directory; %s is there already", o.serve), err)
	}
	content, err := model.ContentHash(file)
	if err != nil {
		return err
	}
	if file, err = filepath.Abs(file); err != nil {
		return err
	}
	serving := partitioning.Serving{
		Content: content, Source: file, Members: o.instances, MaxBatch: o.maxBatch, Until: o.until, Engine: onnxruntime.Name(), Machine: report.Machine(),
	}
	if o.memory != "" {
		serving.Memory = p.Memory()
		if p.MemoryMiB -= partition.Overhead >> 20; p.MemoryMiB <= 0 {
			return fmt.Errorf("--memory is %s: an instance needs %d MiB beside its part", o.memory, partition.Overhead>>20)
		}
	}
	planner, err := partitioning.NewPlanner(ctx, m, p, partitioning.Goal{
		SLO: partition.SLO{Percentile: o.percentile}, Database: o.database, Prepare: prepareLarge, Progress: report.ProgressBar(os.Stderr, "predicting layers"),
	})
	if err != nil {
		return err
	}
	defer planner.Close()
	served, err := planner.Served(ctx, serving)
	if err != nil {
		return err
	}
	return plans.Write(o.serve, served)
}

// prepareLarge prepares a large part in a process of its own.
func prepareLarge(ctx context.Context, file, cache string) error {
	_, err := instances.PrepareApart("", profile.SizeFlags{})(ctx, file, cache)
	return err
}
