package member

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/faas-infer/faas-infer/filelock/workdir"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/cut"
	"github.com/faas-infer/faas-infer/papers/gillis/forkjoin"
)

// Preparer prepares the model of one part below a directory, as a lean [onnxruntime.Prepare]
// does, and returns its prepared directory. A process of its own for each part gives its
// memory back.
type Preparer func(ctx context.Context, file, cache string) (dir string, err error)

// Prepare cuts a model and prepares the parts of a member, or of All, below a directory: once
// per plan, engine version and kind of CPU. Of two processes that do so at once one prepares, and the other
// waits. This process holds about a megabyte of the weights at a time; what
// preparing a part takes is the preparer's. onnxruntime.Load comes first.
//
// Parts whose prepared weights are the same share one file by hard links, so their pages are
// in memory once.
func Prepare(ctx context.Context, c *bundle.Cutting, member int, cache string, prepare Preparer) (*Parts, error) {
	p, err := prepareIn(ctx, c, member, cache, prepare)
	if err != nil {
		return nil, fmt.Errorf("preparing the parts of %s: %w", c.Source, err)
	}
	return p, nil
}

func prepareIn(ctx context.Context, c *bundle.Cutting, member int, cache string, prepare Preparer) (*Parts, error) {
	if err := checkMember(&c.Plan, member); err != nil {
		return nil, err
	}
	if p, err := Find(&c.Plan, member, cache); err == nil {
		return p, Use(p.Dir, time.Now())
	}
	name := dirOf(&c.Plan, member)
	whole := func(dir string) bool {
		_, err := Read(dir)
		return err == nil
	}
	err := workdir.Store{Dir: cache}.Make(ctx, name, whole, func(work string) error {
		return prepareInto(ctx, c, member, work, prepare)
	})
	if err != nil {
		return nil, err
	}
	return Read(filepath.Join(cache, name))
}

// prepareInto prepares the parts of a member, or of All, in an empty directory.
func prepareInto(ctx context.Context, c *bundle.Cutting, member int, work string, prepare Preparer) error {
	raw := filepath.Join(work, ".cut")
	p, err := cutInto(ctx, c, member, raw, func(part Part) error {
		file := filepath.Join(raw, part.Dir, forkjoin.ModelFile)
		made, err := prepare(ctx, file, filepath.Join(work, ".made"))
		if err != nil {
			return err
		}
		return errors.Join(os.Rename(made, filepath.Join(work, part.Dir)), os.RemoveAll(filepath.Dir(file)))
	})
	if err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(raw), os.RemoveAll(filepath.Join(work, ".made")), share(work)); err != nil {
		return err
	}
	p.Dir, p.plain = work, false
	return errors.Join(p.measure(), p.write())
}

// finished begins the names of directories of parts.
const finished = "parts-"

// dirOf is the name of the directory of a plan's parts.
func dirOf(p *cut.Plan, member int) string {
	sum := sha256.New()
	fmt.Fprintf(sum, "%s\n%s\n%s\n%d\n", p.Hash(), onnxruntime.Version(), onnxruntime.HostCPU(), format)
	name := finished + hex.EncodeToString(sum.Sum(nil))[:32]
	if member != All {
		name += fmt.Sprintf("-%d", member)
	}
	return name
}

// Find returns the parts of a member, or of All, that [Prepare] has made below a directory.
func Find(plan *cut.Plan, member int, cache string) (*Parts, error) {
	p, err := Read(filepath.Join(cache, dirOf(plan, All)))
	if err != nil && member != All {
		p, err = Read(filepath.Join(cache, dirOf(plan, member)))
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Cut writes the parts of a member into a new directory as models, which are not prepared:
// every process that opens them optimises them again and shares no weights.
func Cut(ctx context.Context, c *bundle.Cutting, member int, dir string) (*Parts, error) {
	p, err := cutInto(ctx, c, member, dir, func(Part) error { return nil })
	if err != nil {
		return nil, fmt.Errorf("cutting %s: %w", c.Source, err)
	}
	return p, nil
}

// cutInto writes the parts of a member, or of All, into a new directory and calls each with
// every part that it has written.
func cutInto(ctx context.Context, c *bundle.Cutting, member int, dir string, each func(Part) error) (*Parts, error) {
	p := &Parts{
		Dir: dir, Format: format, Plan: c.Plan, Source: filepath.Base(c.Source), Engine: onnxruntime.Version(), CPU: onnxruntime.HostCPU(),
		Member: member, plain: true,
	}
	if err := checkMember(&c.Plan, member); err != nil {
		return nil, err
	}
	m, parts, err := analyse(c)
	if err != nil {
		return nil, err
	}
	p.Inputs, p.Outputs = m.Inputs(), m.Outputs()
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	weights := m.OpenWeights()
	defer weights.Close()
	writer := forkjoin.NewWriter(weights)
	for i, round := range parts {
		p.Rounds = append(p.Rounds, nil)
		for k, cut := range round {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			part := Part{Member: c.Plan.Rounds[i].On[k], Inputs: cut.Inputs(), Outputs: cut.Outputs(), Weights: cut.WeightBytes()}
			if member == All || member == part.Member {
				part.Dir = fmt.Sprintf("round%d-part%d", i+1, k+1)
				if err := os.Mkdir(filepath.Join(dir, part.Dir), 0o755); err != nil {
					return nil, err
				}
				if _, err := writer.Write(filepath.Join(dir, part.Dir), cut); err != nil {
					return nil, fmt.Errorf("round %d, part %d: %w", i+1, k+1, err)
				}
				if err := each(part); err != nil {
					return nil, fmt.Errorf("round %d, part %d: %w", i+1, k+1, err)
				}
			}
			p.Rounds[i] = append(p.Rounds[i], part)
		}
	}
	return p, nil
}

// analyse reads a model's graph, without its weights, and makes the parts of its plan.
func analyse(c *bundle.Cutting) (*model.Model, [][]*cut.Part, error) {
	content, err := model.ContentHash(c.Source)
	if err != nil {
		return nil, nil, err
	}
	m, err := model.ReadOutline(c.Source)
	if err != nil {
		return nil, nil, err
	}
	analysed, err := cut.New(m)
	if err != nil {
		return nil, nil, err
	}
	parts, err := c.Plan.Parts(analysed, content)
	return m, parts, err
}

// sharedFrom is the size in bytes from which equal files are worth one page cache.
const sharedFrom = 64 << 10

// share makes equal files below a directory one file by hard links.
func share(dir string) error {
	bySize := make(map[int64][]string)
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if err == nil && info.Size() >= sharedFrom {
			bySize[info.Size()] = append(bySize[info.Size()], path)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, files := range bySize {
		if len(files) < 2 {
			continue
		}
		first := make(map[[sha256.Size]byte]string)
		for _, file := range files {
			sum, err := sumOf(file)
			if err != nil {
				return err
			}
			same, ok := first[sum]
			if !ok {
				first[sum] = file
				continue
			}
			if err := linkOver(same, file); err != nil {
				return err
			}
		}
	}
	return nil
}

func sumOf(file string) (sum [sha256.Size]byte, err error) {
	f, err := os.Open(file)
	if err != nil {
		return sum, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return sum, err
	}
	return [sha256.Size]byte(h.Sum(nil)), nil
}

// linkOver replaces a file by a hard link to an equal one. A file system without hard links
// keeps both.
func linkOver(same, file string) error {
	beside := file + ".link"
	if os.Link(same, beside) != nil {
		return nil
	}
	return os.Rename(beside, file)
}
