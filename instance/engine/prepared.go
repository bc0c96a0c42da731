package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/faas-infer/faas-infer/filelock/workdir"
)

// HashPrepared hashes every file of a bundle's directory, and beside: anything else
// that decides how the bundle runs.
func HashPrepared(dir, beside string) (string, error) {
	sum := sha256.New()
	fmt.Fprintf(sum, "%s\n", beside)
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		fmt.Fprintf(sum, "\n%q\n", name)
		_, err = io.Copy(sum, f)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("hash the bundle: %w", err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// Record is the name of the file in a prepared directory that describes it.
type Record string

// In reports whether a directory has this record, so is prepared.
func (r Record) In(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, string(r)))
	return err == nil
}

// Read reads the record into a value of the type that Write got.
func (r Record) Read(dir string, into any) error {
	text, err := os.ReadFile(filepath.Join(dir, string(r)))
	if err != nil {
		return fmt.Errorf("the prepared model: %w", err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("the prepared model in %s: %w", dir, err)
	}
	return nil
}

// Write writes what as the directory's record. The directory is prepared from then on.
func (r Record) Write(dir string, what any) error {
	text, err := json.MarshalIndent(what, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, string(r)), text, 0o644)
}

// Keep copies a bundle's directory to DIR/bundle and writes a record beside it. describe
// returns the record's content from the path of the copy. Keep does nothing if dir has
// the record. The directory appears as a whole: readers see all of it or nothing.
func (r Record) Keep(bundle, dir string, describe func(bundle string) any) error {
	kept := workdir.Store{Dir: filepath.Dir(dir)}
	err := kept.Make(context.Background(), filepath.Base(dir), r.In, func(work string) error {
		if err := os.CopyFS(filepath.Join(work, "bundle"), os.DirFS(bundle)); err != nil {
			return err
		}
		return r.Write(work, describe(filepath.Join(dir, "bundle")))
	})
	if err != nil {
		return fmt.Errorf("keep the bundle: %w", err)
	}
	return nil
}
