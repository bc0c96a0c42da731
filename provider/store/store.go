// Package store keeps the state that must survive a restart of the provider. Store keeps
// functions, namespaces, profiles and their corrections, the history of functions' idle
// times, and what is known of model files, in one bbolt file. Secrets keeps the value of
// each secret in a file. The request path uses neither: the provider answers look-ups from
// memory. Begin reading at [Open] and [Store].
package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/openfaas/faas-provider/types"
	"go.etcd.io/bbolt"

	"github.com/faas-infer/faas-infer/profiler"
)

// ErrAbsent is wrapped by errors about a record that is not in the store.
var ErrAbsent = errors.New("not in the store")

// Function is the record of one deployed function.
type Function struct {
	// Deployment is the user's deployment, with its namespace filled in.
	Deployment types.FunctionDeployment `json:"deployment"`
	// CreatedAt is the time of the first deployment, UpdatedAt that of the latest one.
	CreatedAt time.Time `json:"createdAt"`
	UpdatedAt time.Time `json:"updatedAt"`
	// Revision comes from NextRevision. A later deployment of a function has a higher
	// one, even if the function was deleted in between.
	Revision uint64 `json:"revision"`
	// Hash is Hash(Deployment): equal hashes mean equal deployments.
	Hash string `json:"hash"`
	// Replicas is the number of instances to keep even without load: the larger of
	// the scale route's number and the deployment's minimum.
	Replicas uint64 `json:"replicas"`
	// Promoted says that it was a candidate: a store must not replace a deployment that the server has not seen by it.
	Promoted bool `json:"-"`
}

// Hash returns the SHA-256 of the whole deployment in hexadecimal digits.
func Hash(d types.FunctionDeployment) string {
	// Marshal writes maps in the order of their keys, so equal deployments give equal
	// bytes. It cannot fail for a struct of strings.
	text, _ := json.Marshal(d)
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// Buckets and keys of the file. A function's key is namespace/name. Both are DNS labels
// without a slash, so "namespace/" is a prefix of that namespace's keys only.
var (
	bucketFunctions = []byte("functions")
	bucketProfiles  = []byte("profiles")
	// The keys of corrections and histories are functions' full names.
	bucketCorrections = []byte("corrections")
	bucketHistories   = []byte("idle-times")
	// The keys of models are the paths of their files.
	bucketModels = []byte("models")
	// The keys of rollouts are those of functions.
	bucketRollouts = []byte("rollouts")
	bucketMeta     = []byte("meta")
	keyFormat      = []byte("format")
)

// format is the version of the layout above.
const format = 1

// Store is an open file. It is safe for concurrent use.
type Store struct {
	db *bbolt.DB
}

// Close releases the file; the store must not be used after.
func (s *Store) Close() error { return s.db.Close() }

// NextRevision returns a number above all that it has returned before, even before a
// restart.
func (s *Store) NextRevision() (revision uint64, err error) {
	err = s.db.Update(func(tx *bbolt.Tx) error {
		revision, err = tx.Bucket(bucketMeta).NextSequence()
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("store: %w", err)
	}
	return revision, nil
}

// PutFunction writes f under its deployment's namespace and name and replaces an earlier
// record. It returns once the file is on the disk.
func (s *Store) PutFunction(f Function) error {
	return s.put(bucketFunctions, functionKey(f.Deployment.Namespace, f.Deployment.Service), f)
}

// DeleteFunction deletes a function; ErrAbsent if there is none.
func (s *Store) DeleteFunction(namespace, name string) error {
	return s.delete(bucketFunctions, functionKey(namespace, name))
}

// Function returns one function; ErrAbsent if there is none.
func (s *Store) Function(namespace, name string) (Function, error) {
	var f Function
	err := s.get(bucketFunctions, functionKey(namespace, name), &f)
	return f, err
}

// Functions lists a namespace's functions, sorted by name. With namespace "", it lists
// all functions, sorted by namespace and name.
func (s *Store) Functions(namespace string) ([]Function, error) {
	var prefix []byte
	if namespace != "" {
		prefix = functionKey(namespace, "")
	}
	out := []Function{}
	err := s.db.View(func(tx *bbolt.Tx) error {
		c := tx.Bucket(bucketFunctions).Cursor()
		for k, v := c.Seek(prefix); k != nil && bytes.HasPrefix(k, prefix); k, v = c.Next() {
			var f Function
			if err := json.Unmarshal(v, &f); err != nil {
				return fmt.Errorf("function %s: %w", k, err)
			}
			out = append(out, f)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	return out, nil
}

// PutProfile stores a profile under a key, which must identify model, engine and machine.
func (s *Store) PutProfile(key string, p *profiler.Profile) error {
	if key == "" {
		return errors.New("store: a profile needs a key")
	}
	return s.put(bucketProfiles, []byte(key), p)
}

// Profile returns the profile under key; ErrAbsent if there is none.
func (s *Store) Profile(key string) (*profiler.Profile, error) {
	var p profiler.Profile
	if err := s.get(bucketProfiles, []byte(key), &p); err != nil {
		return nil, err
	}
	return &p, nil
}

// ProfilesOf lists the profiles of a model, by its hash, of all engines and machines.
func (s *Store) ProfilesOf(hash string) (all []*profiler.Profile, err error) {
	of := []byte(hash + " ")
	err = s.db.View(func(tx *bbolt.Tx) error {
		c := tx.Bucket(bucketProfiles).Cursor()
		for k, v := c.Seek(of); bytes.HasPrefix(k, of); k, v = c.Next() {
			var p profiler.Profile
			if err := json.Unmarshal(v, &p); err != nil {
				return fmt.Errorf("profile %s: %w", k, err)
			}
			all = append(all, &p)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	return all, nil
}

func functionKey(namespace, name string) []byte { return []byte(namespace + "/" + name) }

func (s *Store) put(bucket, key []byte, value any) error {
	text, err := json.Marshal(value)
	if err == nil {
		err = s.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(bucket).Put(key, text) })
	}
	if err != nil {
		return fmt.Errorf("store: %s %s: %w", bucket, key, err)
	}
	return nil
}

func (s *Store) delete(bucket, key []byte) error {
	err := s.db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucket)
		if b.Get(key) == nil {
			return ErrAbsent
		}
		return b.Delete(key)
	})
	if err != nil {
		return fmt.Errorf("store: %s %s: %w", bucket, key, err)
	}
	return nil
}

func (s *Store) get(bucket, key []byte, value any) error {
	err := s.db.View(func(tx *bbolt.Tx) error {
		text := tx.Bucket(bucket).Get(key)
		if text == nil {
			return ErrAbsent
		}
		return json.Unmarshal(text, value)
	})
	if err != nil {
		return fmt.Errorf("store: %s %s: %w", bucket, key, err)
	}
	return nil
}

// prepare creates the buckets of a new file and checks the format of an old
// one.
func prepare(tx *bbolt.Tx) error {
	for _, name := range [][]byte{bucketFunctions, bucketNamespaces, bucketProfiles, bucketCorrections, bucketHistories, bucketModels, bucketRollouts, bucketMeta} {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	meta := tx.Bucket(bucketMeta)
	found := meta.Get(keyFormat)
	if found == nil {
		return meta.Put(keyFormat, binary.BigEndian.AppendUint32(nil, format))
	}
	if len(found) != 4 || binary.BigEndian.Uint32(found) != format {
		return fmt.Errorf("%w: format %x, this one reads %d", errFormat, found, format)
	}
	return nil
}
