package partitions

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/lab/rig"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/cut"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/papers/gillis/forkjoin"
	"github.com/faas-infer/faas-infer/papers/gillis/partition"
	"github.com/faas-infer/faas-infer/papers/gillis/partitioning"
	"github.com/faas-infer/faas-infer/provider/annotation"
)

func numCPU() int { return runtime.NumCPU() }

// large serves a model that fits into no instance, and watches how much memory processes hold.
func (s *served) large(ctx context.Context) error {
	subject, err := rig.NewSubject(s.Large)
	if err != nil {
		return err
	}
	defer subject.Close()
	limit, err := annotation.ParseMemory(s.Limit)
	if err != nil {
		return err
	}
	watching := s.watch()
	a, records, err := s.cut(ctx, subject, s.Limit, 2)
	others := watching()
	if err != nil {
		return err
	}
	if _, err := s.median(ctx, a, 2); err != nil {
		return err
	}
	ms, err := s.median(ctx, a, s.Requests)
	if err != nil {
		return err
	}
	rss := int64(0)
	for _, r := range records {
		rss = max(rss, peak(r.Process.PID))
	}
	plan, err := cut.ReadPlan(strings.NewReader(records[0].Spec.Plan))
	if err != nil {
		return err
	}
	largest, err := largestMember(subject, plan)
	if err != nil {
		return err
	}
	if err := s.Remove(ctx, "parts"); err != nil {
		return err
	}
	line, err := newPipeline(s.dir, subject, limit-partition.Overhead)
	if err != nil {
		return err
	}
	cached, answer, err := line.time(ctx, true, a.inputs)
	if err != nil {
		return err
	}
	uncached, _, err := line.time(ctx, false, a.inputs)
	if err != nil {
		return err
	}
	_, off := partitioning.Difference(a.answer, answer)
	name := s.Large
	s.report.Add("large.members."+name, float64(records[0].Spec.Config.Members()), "", "instances of "+s.Limit)
	s.report.Add("large.ms."+name, ms, "ms", "median through the provider")
	s.report.Add("large.rss_over_limit", float64(rss)/float64(limit), "", fmt.Sprintf("highest resident set of an instance, %d MiB", rss>>20))
	s.report.Add("large.deploy_over_part", float64(others.bytes)/float64(largest), "", fmt.Sprintf("highest resident set of any other process of the provider, %d MiB (%s), over the largest part, %d MiB", others.bytes>>20, others.what, largest>>20))
	s.report.Add("large.over_pipeline", cached/ms, "", fmt.Sprintf("one instance that maps %d parts after each other, files cached, takes %.0f ms", len(line.parts), cached))
	s.report.Add("large.over_pipeline_uncached", uncached/ms, "", fmt.Sprintf("the same with no file cached, %.0f ms", uncached))
	s.report.Add("large.rel_diff", off, "", "of the answers' elements")
	return nil
}

// held is what the process with the highest resident set held.
type held struct {
	bytes int64
	what  string
}

// watch follows the memory of the provider and its children that are no instances, until the
// function that it returns is called.
func (s *served) watch() func() held {
	var most held
	ctx, stop := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() {
		for ctx.Err() == nil {
			instances := map[int]bool{}
			records, _ := s.Records()
			for _, r := range records {
				instances[r.Process.PID] = true
			}
			for _, pid := range children(s.Process.Pid) {
				text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
				line := string(text)
				if instances[pid] || isInstance(line) {
					continue
				}
				if bytes := peak(pid); bytes > most.bytes {
					most = held{bytes, describe(line)}
				}
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	return func() held {
		stop()
		watching.Wait()
		return most
	}
}

// isInstance reports whether a process's command line is that of an instance.
func isInstance(line string) bool {
	words := strings.Split(line, "\x00")
	return len(words) > 1 && words[1] == "instance" && (len(words) < 3 || words[2] != "prepare")
}

// describe is the beginning of a command line, for people.
func describe(line string) string {
	words := strings.Split(strings.TrimRight(line, "\x00"), "\x00")
	if len(words) < 2 {
		return "the provider"
	}
	return strings.Join(words[1:min(len(words), 3)], " ")
}

// mapped is a part that is mapped for each run, in this process: only its own pages are held.
type mapped struct {
	dir    string
	cached bool
}

// Run implements [forkjoin.Worker].
func (m *mapped) Run(ctx context.Context, rows int, inputs []tensor.Tensor) (out []tensor.Tensor, err error) {
	if !m.cached {
		if err := uncache(m.dir); err != nil {
			return nil, err
		}
	}
	e, err := onnxruntime.Open(onnxruntime.Options{Prepared: m.dir, Threads: 1})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	return e.Run(ctx, rows, inputs)
}

// uncache drops the pages of a directory's files from the page cache.
func uncache(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return err
	}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		err = errors.Join(f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED), f.Close())
		if err != nil {
			return err
		}
	}
	return nil
}

// pipeline is a model in whole groups, of which each fits into one instance, run one after
// the other and each mapped for its run only (Fig. 11).
type pipeline struct {
	*forkjoin.Engine
	parts []*mapped
	// largest is the largest group's weights in bytes.
	largest int64
}

// newPipeline prepares the groups in a directory. Each has at most limit bytes of weights.
func newPipeline(dir string, subject *rig.Subject, limit int64) (*pipeline, error) {
	m, err := model.ReadOutline(subject.File)
	if err != nil {
		return nil, err
	}
	c, err := cut.New(m)
	if err != nil {
		return nil, err
	}
	weights := m.OpenWeights()
	defer weights.Close()
	writer := forkjoin.NewWriter(weights)
	out := &pipeline{}
	var rounds []forkjoin.Round
	for first := 0; first < len(c.Layers()); {
		end, part, err := group(c, first, limit)
		if err != nil {
			return nil, err
		}
		where := filepath.Join(dir, fmt.Sprintf("pipeline-%d", first))
		if err := os.Mkdir(where, 0o755); err != nil {
			return nil, err
		}
		file, err := writer.Write(where, part)
		if err != nil {
			return nil, err
		}
		prepared, err := onnxruntime.Prepare(file, filepath.Join(where, "prepared"), onnxruntime.PrepareOptions{})
		if err != nil {
			return nil, err
		}
		out.largest = max(out.largest, part.WeightBytes())
		worker := &mapped{dir: prepared.Dir}
		out.parts = append(out.parts, worker)
		rounds = append(rounds, forkjoin.Round{{Inputs: part.Inputs(), Outputs: part.Outputs(), Worker: worker}})
		first = end
	}
	out.Engine, err = forkjoin.New(m.Inputs(), m.Outputs(), rounds)
	return out, err
}

// group is the largest group from a layer that has at most limit bytes of weights.
func group(c *cut.Model, first int, limit int64) (end int, part *cut.Part, err error) {
	for e := first + 1; e <= len(c.Layers()); e++ {
		g, err := c.Group(first, e)
		if err != nil {
			return 0, nil, err
		}
		parts, err := g.Cut(g.Whole())
		if err != nil {
			return 0, nil, err
		}
		if part != nil && parts[0].WeightBytes() > limit {
			break
		}
		end, part = e, parts[0]
	}
	return end, part, nil
}

// time is the median time of a request in ms.
func (p *pipeline) time(ctx context.Context, cached bool, inputs []tensor.Tensor) (float64, []tensor.Tensor, error) {
	for _, part := range p.parts {
		part.cached = cached
	}
	var ms []float64
	var answer []tensor.Tensor
	const runs = 3
	for i := range runs + 1 {
		began := time.Now()
		var err error
		if answer, err = p.Run(ctx, 1, inputs); err != nil {
			return 0, nil, err
		}
		if i > 0 { // The first run may read files.
			ms = append(ms, rig.Milliseconds(time.Since(began)))
		}
	}
	return rig.Median(ms), answer, nil
}

// largestMember is the most bytes of weights that a member of the plan holds.
func largestMember(subject *rig.Subject, plan *cut.Plan) (largest int64, err error) {
	m, err := model.ReadOutline(subject.File)
	if err != nil {
		return 0, err
	}
	c, err := cut.New(m)
	if err != nil {
		return 0, err
	}
	parts, err := plan.Parts(c, plan.Model)
	if err != nil {
		return 0, err
	}
	held := make([]int64, plan.Members)
	for i, round := range parts {
		for k, p := range round {
			held[plan.Rounds[i].On[k]] += p.WeightBytes()
		}
	}
	return slices.Max(held), nil
}
