package member

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/faas-infer/faas-infer/filelock/workdir"
)

// measure notes the files of the parts that are there.
func (p *Parts) measure() error {
	for _, round := range p.Rounds {
		for k := range round {
			if round[k].Dir == "" {
				continue
			}
			files := make(map[string]int64)
			entries, err := os.ReadDir(filepath.Join(p.Dir, round[k].Dir))
			if err != nil {
				return err
			}
			for _, e := range entries {
				info, err := e.Info()
				if err != nil {
					return err
				}
				files[e.Name()] = info.Size()
			}
			round[k].Files = files
		}
	}
	return nil
}

// whole returns an error if a file of the parts is not as it was prepared.
func (p *Parts) whole() error {
	for i, round := range p.Rounds {
		for k, part := range round {
			for name, size := range part.Files {
				info, err := os.Stat(filepath.Join(p.Dir, part.Dir, filepath.Base(name)))
				if err == nil && info.Size() != size {
					err = fmt.Errorf("%s has %d bytes, and had %d", name, info.Size(), size)
				}
				if err != nil {
					return fmt.Errorf("part %d of round %d is damaged: %w", k+1, i+1, err)
				}
			}
		}
	}
	return nil
}

// Use notes that a directory that [Prepare] made is in use at a time. An error says that it is
// damaged, or gone: prepare it again. Whether it is for this host only [Read] knows.
func Use(dir string, now time.Time) error {
	p, err := readRecord(dir)
	if err == nil {
		err = p.whole()
	}
	if err == nil {
		workdir.Use(dir, now) // It may be another user's.
	}
	return err
}

// RemoveUnused removes the prepared parts below cache of which no use was noted after a time:
// [Prepare] notes one, and [Use]. Instances that have loaded them keep what they have.
func RemoveUnused(cache string, since time.Time) (removed []string, err error) {
	removed, _, err = workdir.Store{Dir: cache}.Collect(finished+"*", since, -1)
	return removed, err
}
