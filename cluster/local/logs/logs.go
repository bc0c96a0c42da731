// Package logs keeps what instances print. An instance writes directly into its
// file, opened for appending, so nothing is lost when the provider dies. The [Store]
// rotates large files under the running instance, by copying and truncating, and keeps
// files of exited instances for a while. A [Reader] reads a function's lines and follows
// new ones. Begin reading at [Store] and [Reader.Run].
//
// The layout is FUNCTION/ID.log, then FUNCTION/ID.log.1 (newest) and so on for
// rotated files.
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
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/postmortem"
)

const suffix = ".log"

// Store manages the log files of one provider. It is safe for concurrent use and
// must not be copied.
type Store struct {
	// Dir holds one directory per function.
	Dir string
	// MaxBytes is the maximum size of a file. It is rotated above three quarters of that, so
	// that instances, which do not write beyond it, seldom wait.
	MaxBytes int64
	// Keep is how many rotated files each instance keeps, and of how many exited
	// instances each function keeps logs.
	Keep int

	// mu is held while files are renamed or truncated. Readers share it; otherwise
	// they would miss lines or see them twice.
	mu sync.RWMutex
	// rotations counts, by path, how often a file was rotated.
	rotations map[string]int64
	// copy is io.Copy if nil. Tests replace it by one for a full disk.
	copy func(to io.Writer, from io.Reader) (int64, error)
}

// ErrDropped is wrapped by Rotate's error if the disk is full and the log was emptied
// without a copy.
var ErrDropped = errors.New("its lines were dropped")

// Path returns the file that an instance prints to.
func (s *Store) Path(function, id string) string {
	return filepath.Join(s.Dir, function, id+suffix)
}

// Open opens an instance's file for appending and creates it if it is missing.
func (s *Store) Open(function, id string) (*os.File, error) {
	path := s.Path(function, id)
	for {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return nil, fmt.Errorf("directory for logs: %w", err)
		}
		file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if errors.Is(err, fs.ErrNotExist) {
			continue // Prune has just removed the empty directory.
		}
		if err != nil {
			return nil, fmt.Errorf("open log: %w", err)
		}
		return file, nil
	}
}

// Due reports whether an instance's log is to be rotated.
func (s *Store) Due(function, id string) bool {
	info, err := os.Stat(s.Path(function, id))
	return err == nil && info.Size() > s.MaxBytes-s.MaxBytes/4
}

// Rotate moves an instance's log aside if it is due. The process keeps writing to the same
// file: Rotate copies the content, then truncates the file. Meanwhile it holds a lock on the
// file that our own programs respect when they write. Output of others between the two, in
// some µs, is lost. On a full disk, Rotate
// deletes older copies for room, the oldest first. If that is not enough, it truncates the
// file without a copy, and its error wraps ErrDropped: a log must not keep the disk full. If
// Rotate fails for another reason, nothing is lost.
func (s *Store) Rotate(function, id string) error {
	if !s.Due(function, id) {
		return nil
	}
	if err := s.rotate(s.Path(function, id)); err != nil {
		return fmt.Errorf("rotate log: %w", err)
	}
	return nil
}

func (s *Store) rotate(path string) error {
	if s.Keep == 0 {
		return s.cut(path, nil)
	}
	err := s.setAside(path)
	for age := s.Keep; age > 0 && isFull(err); age-- {
		if s.drop(rotated(path, age)) {
			err = s.setAside(path)
		}
	}
	if !isFull(err) {
		return err
	}
	return errors.Join(fmt.Errorf("%w: %w", ErrDropped, err), s.cut(path, nil))
}

// isFull reports whether an error says that there is no space left.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// drop deletes a rotated file and reports whether there was one.
func (s *Store) drop(path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return os.Remove(path) == nil
}

// setAside copies a file to the rotated file number 1 and truncates it. If it fails, nothing
// has changed.
func (s *Store) setAside(path string) error {
	copyAll := s.copy
	if copyAll == nil {
		copyAll = io.Copy
	}
	source, err := os.Open(path)
	if err != nil {
		return err
	}
	defer source.Close()
	aside := path + ".new"
	target, err := os.OpenFile(aside, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	// Most of it is copied while readers continue and before anything changes. A full
	// disk fails here.
	_, err = copyAll(target, source)
	if err == nil {
		unlock := lock(source)
		defer unlock()
		err = s.cut(path, func() error {
			if _, err := copyAll(target, source); err != nil { // Lines printed meanwhile.
				return err
			}
			return s.shift(path)
		})
	}
	if err = errors.Join(err, target.Close()); err != nil {
		_ = os.Remove(aside) // shift may have renamed it already.
	}
	return err
}

// lockPatience is how long lock waits for a process that writes. One that writes all the time
// soon finds the file full, and waits without the lock.
const lockPatience = time.Second

// lock keeps our own programs from writing to a log. It does without the lock if it does not
// get it: a stopped process may have it.
func lock(log *os.File) (unlock func()) {
	for end := time.Now().Add(lockPatience); ; time.Sleep(time.Millisecond / 4) {
		err := unix.Flock(int(log.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = unix.Flock(int(log.Fd()), unix.LOCK_UN) } // Closing it does that, too.
		}
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(end) {
			return func() {}
		}
	}
}

// shift renames the rotated files to the next number and makes the copy number 1.
func (s *Store) shift(path string) error {
	for i := s.Keep - 1; i > 0; i-- {
		if err := os.Rename(rotated(path, i), rotated(path, i+1)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return os.Rename(path+".new", rotated(path, 1))
}

// cut calls before, if it is not nil, and truncates a file, both under the lock. before
// must finish the copy of the file.
func (s *Store) cut(path string, before func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before != nil {
		if err := before(); err != nil {
			return err
		}
	}
	if err := os.Truncate(path, 0); err != nil {
		return err
	}
	if s.rotations == nil {
		s.rotations = map[string]int64{}
	}
	s.rotations[path]++
	return nil
}

func rotated(path string, age int) string { return path + "." + strconv.Itoa(age) }

// Prune deletes logs of a function's instances for which live is false: all except
// the Keep that were written last, and those of them that are older than since. It
// removes a function's directory with its last file.
func (s *Store) Prune(function string, live func(id string) bool, since time.Time) error {
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
			// Another call may prune at the same time.
			if err := os.Remove(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
		s.forget(s.Path(function, instance.id))
	}
	// This fails, as it should, unless the directory is empty.
	_ = os.Remove(dir)
	return errors.Join(errs...)
}

// forget drops the state of a deleted file.
func (s *Store) forget(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.rotations, path)
}

// Functions lists the functions that have logs.
func (s *Store) Functions() ([]string, error) {
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

// Cause returns the line of an instance's log that says why its process ended with an exit code,
// as [postmortem.Cause] chooses it, without the time at its beginning.
func (s *Store) Cause(function, id string, code int) string {
	const reach = 256 << 10 // A crash report has the stacks of all goroutines.
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
	var text strings.Builder
	for line := range bytes.Lines(tail[:read]) {
		text.WriteString(unstamped(strings.ToValidUTF8(string(line), "")))
	}
	return postmortem.Cause(code, text.String())
}

// unstamped returns a log line without the time at its beginning.
func unstamped(line string) string {
	stamp, text, _ := strings.Cut(line, " ")
	if _, err := time.Parse(time.RFC3339Nano, stamp); err == nil {
		return text
	}
	return line
}
