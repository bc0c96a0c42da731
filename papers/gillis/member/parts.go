// Package member is one member of a set that serves a cut model (Gillis, ICDCS 2021 §III-B):
// it makes a member's parts of a plan and opens them, as the master or as a worker. Member 0
// is the master. It does not decide who computes what, which is the plan's, and knows nothing
// of the other members' processes.
//
// Begin with [Prepare], which cuts a model once for a host, and [Cut], which does so for one
// process. [Parts.Master] and [Parts.Worker] open what they made.
package member

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model/cut"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/papers/gillis/forkjoin"
)

// All is the member of [Prepare] that stands for all members.
const All = -1

const (
	// recordFile describes a directory of parts. It is written last.
	recordFile = "parts.json"
	// format is the version of the record and of how parts are cut. Models cut by another
	// version are cut again.
	format = 2
)

// Parts describes the parts of a plan in a directory: recordFile's content.
type Parts struct {
	// Dir is the directory.
	Dir    string   `json:"-"`
	Format int      `json:"format"`
	Plan   cut.Plan `json:"plan"`
	// Source is the base name of the whole model's file, for people.
	Source string `json:"source"`
	// Engine is the version of ONNX Runtime, CPU the kind of CPU for which the parts were
	// prepared.
	Engine string `json:"engine"`
	CPU    string `json:"cpu"`
	// Member is the only one whose parts are there, or All.
	Member int `json:"member"`
	// Inputs and Outputs are the whole model's.
	Inputs  []tensor.Info `json:"inputs"`
	Outputs []tensor.Info `json:"outputs"`
	// Rounds are all parts by round, also those that are not there.
	Rounds [][]Part `json:"rounds"`
	// plain says that the parts are models as they were cut, not prepared ones.
	plain bool
}

// Part is one part of a round.
type Part struct {
	// Member computes it.
	Member int `json:"member"`
	// Dir is where it is below Parts.Dir, "" if it is not there.
	Dir string `json:"dir,omitempty"`
	// Inputs and Outputs are the part's, in the order of its model.
	Inputs  []cut.Tensor `json:"inputs"`
	Outputs []cut.Tensor `json:"outputs"`
	// Weights is the size of its weights in bytes.
	Weights int64 `json:"weights"`
	// Files are the sizes of its prepared files in bytes, by name in Dir.
	Files map[string]int64 `json:"files,omitempty"`
}

// IsPrepared reports whether [Prepare] made a directory.
func IsPrepared(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, recordFile))
	return err == nil
}

// Read reads the record of a directory that [Prepare] made. It refuses one that is damaged, or
// for another kind of CPU or another version of ONNX Runtime. onnxruntime.Load comes first.
func Read(dir string) (*Parts, error) {
	p, err := readRecord(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the cut model: %w", err)
	}
	if err == nil {
		err = p.check()
	}
	if err == nil {
		err = p.whole()
	}
	if err != nil {
		return nil, fmt.Errorf("the cut model in %s: %w; cut it again with \"faas-infer instance prepare\"", dir, err)
	}
	return p, nil
}

func readRecord(dir string) (*Parts, error) {
	text, err := os.ReadFile(filepath.Join(dir, recordFile))
	if err != nil {
		return nil, err
	}
	p := &Parts{}
	if err := json.Unmarshal(text, p); err != nil {
		return nil, fmt.Errorf("%s: %w", recordFile, err)
	}
	p.Dir = dir
	return p, nil
}

// check refuses a record that is not for this host, or does not fit its plan.
func (p *Parts) check() error {
	switch {
	case p.Format != format:
		return fmt.Errorf("%s has the format %d, not %d", recordFile, p.Format, format)
	case p.Engine != onnxruntime.Version():
		return fmt.Errorf("it is for ONNX Runtime %s, but the loaded version is %s", p.Engine, onnxruntime.Version())
	case p.CPU != onnxruntime.HostCPU():
		return fmt.Errorf("it is for the CPU %s, but this host's is %s", p.CPU, onnxruntime.HostCPU())
	case len(p.Rounds) != len(p.Plan.Rounds):
		return fmt.Errorf("%s has %d rounds for a plan with %d", recordFile, len(p.Rounds), len(p.Plan.Rounds))
	}
	for i, round := range p.Rounds {
		if len(round) != len(p.Plan.Rounds[i].On) {
			return fmt.Errorf("round %d has %d parts, and the plan %d", i+1, len(round), len(p.Plan.Rounds[i].On))
		}
		for k, part := range round {
			if part.Member != p.Plan.Rounds[i].On[k] {
				return fmt.Errorf("part %d of round %d is of member %d, and the plan says %d", k+1, i+1, part.Member, p.Plan.Rounds[i].On[k])
			}
			if part.Dir != "" && !filepath.IsLocal(part.Dir) {
				return fmt.Errorf("part %d of round %d is in %q, outside the directory", k+1, i+1, part.Dir)
			}
		}
	}
	return nil
}

// write writes the record. The directory is complete from then on.
func (p *Parts) write() error {
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(p.Dir, recordFile), append(text, '\n'), 0o644)
}

// checkMember refuses a member that the plan does not have, unless it is All.
func checkMember(p *cut.Plan, member int) error {
	if member != All && (member < 0 || member >= p.Members) {
		return fmt.Errorf("member %d: the plan has members 0 to %d", member, p.Members-1)
	}
	return nil
}

// has refuses a member that the plan does not have, or whose parts are not there.
func (p *Parts) has(member int) error {
	if err := checkMember(&p.Plan, member); err != nil {
		return err
	}
	if p.Member != All && p.Member != member {
		return fmt.Errorf("member %d: %s has the parts of member %d only", member, p.Dir, p.Member)
	}
	return nil
}

// options say how to open a part here.
func (p *Parts) options(part Part, o Options) onnxruntime.Options {
	dir := filepath.Join(p.Dir, part.Dir)
	opened := onnxruntime.Options{Prepared: dir, Threads: o.Threads, MemoryLimit: o.Memory}
	if p.plain {
		opened.Model, opened.Prepared = filepath.Join(dir, forkjoin.ModelFile), ""
	}
	return opened
}

// PrepareFirst reports whether a process with so many bytes of memory, 0 for no limit, should
// prepare a member's parts one by one before it loads them. Loading takes the memory of all
// weights, and of 1.7 times the largest part's more while that is optimised; preparing takes 2.7
// times the largest part's (measured with wide ResNets). So preparing helps a member with
// several parts. It takes longer, so it is only for memory that would not suffice otherwise.
func (p *Parts) PrepareFirst(member int, memory int64) bool {
	var all, largest int64
	for _, round := range p.Rounds {
		for _, part := range round {
			if part.Member == member {
				all, largest = all+part.Weights, max(largest, part.Weights)
			}
		}
	}
	more := largest + largest*7/10
	return memory > 0 && all+more > memory && largest+more <= memory
}
