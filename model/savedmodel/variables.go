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

// checkVariables checks that the files of a model's variables are there and whole,
// and hold at least size bytes together.
func checkVariables(dir string, size int64) error {
	if size == 0 {
		return nil // All weights are constants in the graph.
	}
	index, err := os.ReadFile(filepath.Join(dir, "variables.index"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %s is missing, and the graph has %d bytes of variables; copy the whole directory", ErrVariables, filepath.Join(dir, "variables.index"), size)
	case err != nil:
		return fmt.Errorf("%w: %w", ErrVariables, err)
	case isPointer(index):
		return fmt.Errorf("%w: variables.index is a Git LFS pointer; get the file itself with `git lfs pull`", ErrVariables)
	case !bytes.HasSuffix(index, tableEnd):
		return fmt.Errorf("%w: variables.index ends early or holds something else; copy it again", ErrVariables)
	}
	have, err := shards(dir)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrVariables, err)
	}
	if have < size {
		return fmt.Errorf("%w: the files hold %d bytes, and the graph needs %d; copy them again", ErrVariables, have, size)
	}
	return nil
}

// shards is the sum of the data files' sizes in bytes. A missing file is an error.
func shards(dir string) (size int64, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	found, all := 0, 0
	for _, e := range entries {
		parts := shard.FindStringSubmatch(e.Name())
		if parts == nil {
			continue
		}
		n, err := dataSize(filepath.Join(dir, e.Name()))
		if err != nil {
			return 0, err
		}
		found, size = found+1, size+n
		if all, err = strconv.Atoi(parts[2]); err != nil {
			return 0, err
		}
	}
	if found == 0 || found < all {
		return 0, fmt.Errorf("%s has %d of %d files variables.data-…; copy the whole directory", dir, found, max(all, 1))
	}
	return size, nil
}

func dataSize(path string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	start := make([]byte, 64)
	n, err := io.ReadFull(f, start)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return 0, err
	}
	if isPointer(start[:n]) {
		return 0, fmt.Errorf("%s is a Git LFS pointer; get the file itself with `git lfs pull`", path)
	}
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}
