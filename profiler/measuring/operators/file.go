// Package operators is the file that keeps operators' profiles on this machine:
// the driver of profiler/database. Several processes may append to one file at
// once; one that is killed loses at most the row that it was writing.
package operators

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/faas-infer/faas-infer/profiler/database"
)

// group is after how many rows Append lets the disk catch up by itself.
const group = 64

// File is an open database. It is for one goroutine at a time; other processes
// may have the same file open.
type File struct {
	path string
	said func(Repair)
	f    *os.File
	// db is what the first size bytes of f say.
	db   *database.Database
	size int64
	// unsynced is how many rows the disk may not have yet.
	unsynced int
}

// FileName is what the database is called in a directory of state.
const FileName = "operators.jsonl"

// DefaultPath is where the database is unless said otherwise:
// $XDG_STATE_HOME/faas-infer/operators.jsonl, and ~/.local/state for the
// variable if that is not set.
func DefaultPath() (string, error) {
	state := os.Getenv("XDG_STATE_HOME")
	if state == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("where to keep operators' profiles: %w; set XDG_STATE_HOME", err)
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "faas-infer", FileName), nil
}

// Open opens the database at path to read and to append, and creates it, with
// its directory, if absent. A damaged file is repaired: rewritten from what is
// whole, the damaged one kept beside it, and said is told (nil: nobody). The
// error wraps a *database.NewerError or database.ErrForeign if the file is not
// to be written; it is then as it was.
func Open(path string, said func(Repair)) (*File, error) {
	if said == nil {
		said = func(Repair) {}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("operator profiles: %w", err)
	}
	// A link is not to be replaced by a file when that is repaired.
	if to, err := filepath.EvalSymlinks(path); err == nil {
		path = to
	}
	f := &File{path: path, said: said}
	if err := f.Refresh(); err != nil {
		return nil, errors.Join(err, f.release())
	}
	return f, nil
}

// Load reads the database at path and writes nothing; it is empty if there is no
// file. The rest is as with database.Decode.
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

// Path is the file's.
func (f *File) Path() string { return f.path }

// Database is what the file held at the last Append, Import or Refresh. It
// changes with these, and nobody else is to change it.
func (f *File) Database() *database.Database { return f.db }

// Refresh reads what other processes have appended. If the file is gone, it is
// begun anew, and the database is empty.
func (f *File) Refresh() error {
	if err := f.acquire(); err != nil {
		return err
	}
	return f.unlock()
}

// Append checks the rows and writes all or none of them. They are in the file
// when it returns, and outlive this process; the disk has them for certain after
// Sync. The error names a full disk, and the rows so far stay.
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

// Import writes the rows of other that are not there yet or newer than those that
// are, of all engines and machines, and where they come from; all or none. It
// returns when the disk has them.
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
		// The database is not what the file says; it is read again.
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

// Sync returns when the disk has all rows that were appended.
func (f *File) Sync() error {
	if err := f.f.Sync(); err != nil {
		return fmt.Errorf("operator profiles: %w", err)
	}
	f.unsynced = 0
	return nil
}

// Close syncs and lets go of the file.
func (f *File) Close() error {
	var err error
	if f.unsynced > 0 {
		err = f.Sync()
	}
	return errors.Join(err, f.release())
}
