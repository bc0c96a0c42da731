package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/correction"
)

// lockWait is how long Open waits for another process to release the file. A provider
// that is being replaced takes a moment to exit.
const lockWait = 2 * time.Second

// errFormat marks a file that another version of this program wrote.
var errFormat = errors.New("the file was written by another version of faas-infer")

// CorruptError says that a store's file cannot be read, and what to do.
type CorruptError struct {
	Path string
	Err  error
}

// Error names the file and the fix.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("the store %s is damaged (%v); move it away (mv %s %s.damaged), start again, create the namespaces and deploy the functions again; nothing else is lost, models are measured again",
		e.Path, e.Err, e.Path, e.Path)
}

// Unwrap returns Err.
func (e *CorruptError) Unwrap() error { return e.Err }

// Open opens the store in the file at path. It creates the file and its directory if they
// are absent. It reads the whole file once, so damage shows here and not at a later
// look-up; the error is then a *CorruptError. Only one process can have a store open.
func Open(path string) (s *Store, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	db, err := openFile(path)
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return nil, fmt.Errorf("the store %s is in use by another process: stop the other faas-infer, or give this one a directory of its own", path)
	case isSystem(err):
		return nil, fmt.Errorf("store: %w", err)
	case err != nil:
		return nil, &CorruptError{Path: path, Err: err}
	}
	if err := guard(func() error { return check(db) }); err != nil {
		_ = db.Close() // The error found matters more.
		if errors.Is(err, errFormat) || isSystem(err) {
			return nil, fmt.Errorf("store %s: %w", path, err)
		}
		return nil, &CorruptError{Path: path, Err: err}
	}
	return &Store{db: db}, nil
}

func openFile(path string) (db *bbolt.DB, err error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = create(path)
	} else if err == nil && info.Size() == 0 {
		// bbolt would take an empty file for a new one.
		err = errors.New("it is empty")
	}
	if err == nil && info != nil && info.Mode().IsRegular() {
		err = whole(path, info.Size())
	}
	if err != nil {
		return nil, err
	}
	return openBolt(path)
}

// whole returns an error if the file has lost its end. Call it before opening the file
// for writing, which would make the file longer: a damaged file must stay as it is.
func whole(path string, size int64) error {
	return guard(func() error {
		db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockWait, ReadOnly: true, PreLoadFreelist: false})
		if err != nil {
			return err
		}
		defer db.Close()
		return db.View(func(tx *bbolt.Tx) error {
			if need := tx.Size(); need > size {
				return fmt.Errorf("it has %d bytes of %d, a part has been cut off", size, need)
			}
			return nil
		})
	})
}

func openBolt(path string) (db *bbolt.DB, err error) {
	err = guard(func() error {
		// Only this user may read the file: functions' environments may contain secrets.
		db, err = bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockWait, FreelistType: bbolt.FreelistMapType})
		return err
	})
	return db, err
}

// create makes an empty store at path. The file appears there complete and in one step,
// unless another process was faster. A file of no bytes has therefore lost its content.
func create(path string) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if err := f.Close(); err != nil {
		return err
	}
	db, err := openBolt(f.Name())
	if err != nil {
		return err
	}
	if err := db.Close(); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// isSystem reports whether err comes from the file system (no permission, a directory, a
// full disk) and not from the file's content.
func isSystem(err error) bool {
	var pathError *os.PathError
	var linkError *os.LinkError
	return errors.As(err, &pathError) || errors.As(err, &linkError)
}

// guard turns bbolt's panics over damaged pages into errors, including reads beyond the
// end of a truncated file, which raise SIGBUS.
func guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch p := recover().(type) {
		case nil:
		case runtime.Error:
			err = errors.New("its pages do not fit together, as if a part had been cut off")
		default:
			err = fmt.Errorf("%v", p)
		}
	}()
	return f()
}

// check prepares the file and parses its records.
func check(db *bbolt.DB) error {
	if err := db.Update(prepare); err != nil {
		return err
	}
	return db.View(func(tx *bbolt.Tx) error {
		return errors.Join(checkBucket[Function](tx, bucketFunctions), checkBucket[Namespace](tx, bucketNamespaces),
			checkBucket[profiler.Profile](tx, bucketProfiles), checkBucket[correction.State](tx, bucketCorrections))
	})
}

func checkBucket[T any](tx *bbolt.Tx, bucket []byte) error {
	return tx.Bucket(bucket).ForEach(func(k, v []byte) error {
		var record T
		if err := json.Unmarshal(v, &record); err != nil {
			return fmt.Errorf("%s %q: %w", bucket, k, err)
		}
		return nil
	})
}
