package savedmodel

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
)

// tableEnd ends the index of variables, which is an SSTable.
var tableEnd = []byte{0x57, 0xfb, 0x80, 0x8b, 0x24, 0x75, 0x47, 0xdb}

var shard = regexp.MustCompile(`^variables\.data-(\d{5})-of-(\d{5})$`)

// checkVariables checks that the files of a model's variables are there and whole. A
// model without their directory has all weights as constants in the graph.
func checkVariables(dir string) error {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	index, err := os.ReadFile(filepath.Join(dir, "variables.index"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		shards, _ := filepath.Glob(filepath.Join(dir, "variables.data-*"))
		if len(shards) == 0 {
			return nil // TensorFlow makes the directory for a model without variables, too.
		}
		return fmt.Errorf("%w: %s is missing; copy the whole directory", ErrVariables, filepath.Join(dir, "variables.index"))
	case err != nil:
		return fmt.Errorf("%w: %w", ErrVariables, err)
	case isPointer(index):
		return fmt.Errorf("%w: variables.index is a Git LFS pointer; get the file itself with `git lfs pull`", ErrVariables)
	case !bytes.HasSuffix(index, tableEnd):
		return fmt.Errorf("%w: variables.index ends early or holds something else; copy it again", ErrVariables)
	}
	if err := checkShards(dir); err != nil {
		return fmt.Errorf("%w: %w", ErrVariables, err)
	}
	return nil
}

// checkShards refuses data files of which one is missing or is a pointer.
func checkShards(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	found, all := 0, 0
	for _, e := range entries {
		parts := shard.FindStringSubmatch(e.Name())
		if parts == nil {
			continue
		}
		if err := checkShard(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
		found++
		if all, err = strconv.Atoi(parts[2]); err != nil {
			return err
		}
	}
	if found == 0 || found < all {
		return fmt.Errorf("%s has %d of %d files variables.data-…; copy the whole directory", dir, found, max(all, 1))
	}
	return nil
}

func checkShard(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	start := make([]byte, 64)
	n, err := io.ReadFull(f, start)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	if isPointer(start[:n]) {
		return fmt.Errorf("%s is a Git LFS pointer; get the file itself with `git lfs pull`", path)
	}
	return nil
}
