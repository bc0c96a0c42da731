package reproduction

import (
	"bytes"
	"encoding/gob"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// keepFile is the file in dir that keeps a part's outcome.
func keepFile(dir string, s Seed, p part) string {
	return filepath.Join(dir, s.Name+"-"+p.name+".gob")
}

// kept returns the outcome of a part in dir, of whichever commit. It is nil if dir is "" or has no
// outcome of the part's command. An error names a file that cannot be read.
func kept(dir string, s Seed, p part) (*Part, error) {
	if dir == "" {
		return nil, nil
	}
	name := keepFile(dir, s, p)
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var one Part
	if err == nil {
		err = gob.NewDecoder(bytes.NewReader(data)).Decode(&one)
	}
	if err != nil {
		return nil, fmt.Errorf("%s keeps no outcome: remove it: %w", name, err)
	}
	if one.Command != p.command {
		return nil, nil // The part has changed.
	}
	return &one, nil
}

// keep writes a part's outcome into dir unless dir is "". A run that is interrupted leaves no half
// of a file.
func keep(dir string, s Seed, p part, one *Part) error {
	if dir == "" {
		return nil
	}
	var data bytes.Buffer
	if err := gob.NewEncoder(&data).Encode(one); err != nil {
		return err
	}
	name := keepFile(dir, s, p)
	if err := os.WriteFile(name+".new", data.Bytes(), 0o644); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// distinct joins what the parts say of themselves, each once.
func (o *Outcome) distinct(of func(p *Part) string) string {
	var all []string
	for i := range o.Parts {
		if v := of(&o.Parts[i]); !slices.Contains(all, v) {
			all = append(all, v)
		}
	}
	return strings.Join(all, ", ")
}
