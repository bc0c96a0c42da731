// Package logs keeps what instances print. An instance writes straight into
// its file, opened for appending, so nothing is lost when the provider dies;
// files that have grown too large are rotated beneath it, by copying and
// truncating. Files of instances that are gone stay for a while.
//
// The layout is FUNCTION/ID.log, then FUNCTION/ID.log.1 (newest) and so on for
// what was rotated.
package logs

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

const suffix = ".log"

// Store is the log files of one provider.
type Store struct {
	// Dir holds one directory per function.
	Dir string
	// MaxBytes is the size over which a file is rotated.
	MaxBytes int64
	// Keep is how many rotated files an instance keeps, and how many gone
	// instances a function keeps the logs of.
	Keep int
}

// Path returns the file that an instance prints to.
func (s Store) Path(function, id string) string {
	return filepath.Join(s.Dir, function, id+suffix)
}

// Open opens an instance's file for appending and makes it if need be.
func (s Store) Open(function, id string) (*os.File, error) {
	path := s.Path(function, id)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("directory for logs: %w", err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	return file, nil
}

// Rotate moves an instance's log aside if it is over MaxBytes. The process
// keeps writing to the same file: its content is copied, then cut off. What it
// prints between the two, some µs, is lost.
func (s Store) Rotate(function, id string) error {
	path := s.Path(function, id)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() <= s.MaxBytes {
		return nil
	}
	if err != nil {
		return fmt.Errorf("rotate log: %w", err)
	}
	if s.Keep > 0 {
		for i := s.Keep - 1; i > 0; i-- {
			if err := os.Rename(rotated(path, i), rotated(path, i+1)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("rotate log: %w", err)
			}
		}
		if err := copyAll(path, rotated(path, 1)); err != nil {
			return fmt.Errorf("rotate log: %w", err)
		}
	}
	if err := os.Truncate(path, 0); err != nil {
		return fmt.Errorf("rotate log: %w", err)
	}
	return nil
}

func rotated(path string, age int) string { return path + "." + strconv.Itoa(age) }

func copyAll(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}

// Prune deletes logs of a function's instances for which live is false: all
// but the Keep that were written last, and of those what is older than since.
// A function's directory goes with its last file.
func (s Store) Prune(function string, live func(id string) bool, since time.Time) error {
	dir := filepath.Join(s.Dir, function)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("prune logs: %w", err)
	}
	gone := goneInstances(entries, live)
	slices.SortFunc(gone, func(a, b instanceFiles) int {
		return cmp.Or(b.written.Compare(a.written), strings.Compare(a.id, b.id))
	})
	var errs []error
	for i, instance := range gone {
		if i < s.Keep && !instance.written.Before(since) {
			continue
		}
		for _, name := range instance.names {
			errs = append(errs, os.Remove(filepath.Join(dir, name)))
		}
	}
	// It fails while the directory holds anything, as it should.
	_ = os.Remove(dir)
	return errors.Join(errs...)
}

// Functions lists the functions that have logs.
func (s Store) Functions() ([]string, error) {
	entries, err := os.ReadDir(s.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list logs: %w", err)
	}
	var functions []string
	for _, entry := range entries {
		if entry.IsDir() {
			functions = append(functions, entry.Name())
		}
	}
	return functions, nil
}

// instanceFiles are the files of one instance.
type instanceFiles struct {
	id      string
	names   []string
	written time.Time
}

func goneInstances(entries []fs.DirEntry, live func(id string) bool) []instanceFiles {
	byID := map[string]*instanceFiles{}
	for _, entry := range entries {
		id, _, ok := strings.Cut(entry.Name(), suffix)
		info, err := entry.Info()
		if !ok || err != nil || live(id) {
			continue
		}
		files := byID[id]
		if files == nil {
			files = &instanceFiles{id: id}
			byID[id] = files
		}
		files.names = append(files.names, entry.Name())
		if info.ModTime().After(files.written) {
			files.written = info.ModTime()
		}
	}
	var gone []instanceFiles
	for _, files := range byID {
		gone = append(gone, *files)
	}
	return gone
}

// LastLine returns the last line that is not empty, at most 200 bytes of it,
// or "" if there is none: usually why a process gave up.
func (s Store) LastLine(function, id string) string {
	const reach, longest = 4096, 200
	file, err := os.Open(s.Path(function, id))
	if err != nil {
		return ""
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return ""
	}
	tail := make([]byte, min(reach, info.Size()))
	read, err := file.ReadAt(tail, info.Size()-int64(len(tail)))
	if err != nil && !errors.Is(err, io.EOF) {
		return ""
	}
	tail = bytes.TrimSpace(tail[:read])
	line := bytes.TrimSpace(tail[bytes.LastIndexByte(tail, '\n')+1:])
	return strings.ToValidUTF8(string(line[:min(longest, len(line))]), "")
}
