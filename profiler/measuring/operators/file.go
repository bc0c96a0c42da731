// Package operators keeps operators' profiles in a file on this machine. Several
// processes may append to the file at once, and a killed process loses at most the row
// that it was writing. The format of the file is in package profiler/database. Begin with
// [Open] and [Load].
package operators

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/faas-infer/faas-infer/profiler/database"
)

// group is the number of rows after which Append syncs.
const group = 64

// File is an open database. Only one goroutine may use it at a time. Other processes may
// have the same file open.
type File struct {
	path string
	// repaired is called after a repair.
	repaired func(Repair)
	f        *os.File
	// db is the content of the first size bytes of f.
	db   *database.Database
	size int64
	// unsynced is the number of rows that may not be on the disk yet.
	unsynced int
}

// FileName is the name of the database's file in a state directory.
const FileName = "operators.jsonl"

// DefaultPath is the default path of the database:
// $XDG_STATE_HOME/faas-infer/operators.jsonl. The default of the variable is
// ~/.local/state.
func DefaultPath() (string, error) {
	state := os.Getenv("XDG_STATE_HOME")
	if state == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("find the state directory: %w; set XDG_STATE_HOME", err)
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "faas-infer", FileName), nil
}

// Open opens the database at path to read and to append. It creates a missing file and
// directory. It repairs a damaged file: it writes a new file of the complete rows, keeps
// the damaged one beside it, and calls repaired, which may be nil. If Open must not write
// the file, the error wraps a *database.NewerError or database.ErrForeign, and the file
// is unchanged.
func Open(path string, repaired func(Repair)) (*File, error) {
	if repaired == nil {
		repaired = func(Repair) {}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("operator profiles: %w", err)
	}
	// A repair must replace the file, not a link to it.
	if to, err := filepath.EvalSymlinks(path); err == nil {
		path = to
	}
	f := &File{path: path, repaired: repaired}
	if err := f.Refresh(); err != nil {
		return nil, errors.Join(err, f.release())
	}
	return f, nil
}

// Load reads the database at path and writes nothing. Without a file the database is
// empty. Otherwise the results are those of database.Decode.
func Load(path string) (*database.Database, []database.Damage, error) {
	data, err := read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &database.Database{}, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	db, damage, err := database.Decode(data)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return db, damage, nil
}

// Database is the content of the file at the last Append, Import or Refresh. These
// methods change it; the caller must not.
func (f *File) Database() *database.Database { return f.db }

// Refresh reads the rows that other processes have appended. If the file is gone, it
// creates a new one, and the database is empty.
func (f *File) Refresh() error {
	if err := f.acquire(); err != nil {
		return err
	}
	return f.unlock()
}

// Append checks the rows and writes all or none of them. When it returns they are in the
// file and survive this process. They survive a power failure after [File.Sync]. If the
// disk is full, Append returns an error and the earlier rows stay.
func (f *File) Append(rows ...database.Row) error {
	var text []byte
	for _, r := range rows {
		line, err := database.Encode(r)
		if err != nil {
			return fmt.Errorf("operator profiles: %w", err)
		}
		text = append(text, line...)
	}
	if err := f.write(text); err != nil || len(rows) == 0 {
		return err
	}
	for _, r := range rows {
		f.db.Add(r)
	}
	if f.unsynced += len(rows); f.unsynced >= group {
		return f.Sync()
	}
	return nil
}

// Import writes all or none of the rows of other that are new or newer, of all engines
// and machines, and their provenance. It returns when they are on the disk.
func (f *File) Import(other *database.Database) (database.Merged, error) {
	if err := f.acquire(); err != nil {
		return database.Merged{}, err
	}
	known := len(f.db.Provenance())
	merged, rows := f.db.Merge(other)
	text, err := lines(f.db.Provenance()[known:], rows)
	if err == nil {
		err = f.extend(text)
	}
	if err != nil {
		// The database differs from the file, so read the file again.
		f.forget()
		_, again := f.catchUp()
		err = errors.Join(err, again)
	}
	if err := errors.Join(err, f.unlock()); err != nil {
		return database.Merged{}, err
	}
	f.unsynced += len(rows)
	return merged, f.Sync()
}

func lines(from []database.Provenance, rows []database.Row) (text []byte, err error) {
	for _, p := range from {
		line, err := database.EncodeProvenance(p)
		if err != nil {
			return nil, err
		}
		text = append(text, line...)
	}
	for _, r := range rows {
		line, err := database.Encode(r)
		if err != nil {
			return nil, err
		}
		text = append(text, line...)
	}
	return text, nil
}

// Sync returns when all appended rows are on the disk.
func (f *File) Sync() error {
	if err := f.f.Sync(); err != nil {
		return fmt.Errorf("operator profiles: %w", err)
	}
	f.unsynced = 0
	return nil
}

// Close syncs and closes the file.
func (f *File) Close() error {
	var err error
	if f.unsynced > 0 {
		err = f.Sync()
	}
	return errors.Join(err, f.release())
}
