package local

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/local/process"
)

// record is the content of instance.json: all that the next provider must know. An
// instance's directory is made before anything else of it, this file once its process
// runs. A directory without a readable file therefore belongs to an incomplete instance.
// Its name is enough to find and remove the rest.
//
// Files are not synced to disk. They have to survive a killed provider only: after a
// power cut there are no processes to take over.
type record struct {
	Spec cluster.InstanceSpec `json:"spec"`
	// Process identifies its process; nil if the file could not be read.
	Process *process.Identity `json:"process"`
	Socket  string            `json:"socket"`
	// Cgroup: the instance is in the cgroup of its ID.
	Cgroup bool `json:"cgroup"`
	// User is the user of a function's processes, 0 for the provider's user.
	User int `json:"user,omitempty"`
	// Cores are its exclusive cores.
	Cores     []int     `json:"cores,omitempty"`
	StartedAt time.Time `json:"startedAt"`
	ReadyAt   time.Time `json:"readyAt"`
}

// layout knows the paths below Options.Dir.
type layout struct {
	dir string
	// sockets is the separate directory for sockets, "" if there is none. separate says that it is needed.
	sockets  string
	separate bool
	// removeAll is os.RemoveAll. Tests replace it by one that fails.
	removeAll func(path string) error
}

// maxSocketPath is the longest path in bytes that fits into a sockaddr_un with its
// terminating zero.
const maxSocketPath = 107

// newLayout makes the state directory. Sockets are in their instance's directory. If such
// a path could exceed maxSocketPath, they are in a directory of this user among the
// system's temporary files, which openSockets makes.
func newLayout(dir string) (layout, error) {
	l := layout{dir: dir, removeAll: os.RemoveAll}
	if err := os.MkdirAll(l.instances(), 0o700); err != nil {
		return l, fmt.Errorf("state directory: %w", err)
	}
	const maxID = 63
	l.separate = len(l.instances())+1+maxID+len("/socket.relay") > maxSocketPath
	return l, nil
}

// openSockets finds or makes the separate directory for sockets if the layout needs one. Its name has a random
// part, so that no other user can take it before; a symbolic link in the state directory keeps the name for the
// next provider. Only the holder of the lock may call it, and closeSockets later.
func (l *layout) openSockets() error {
	if !l.separate {
		return nil
	}
	if made, err := os.Readlink(l.socketsLink()); err == nil && ownAlone(made) {
		l.sockets = made
		return nil
	}
	made, err := os.MkdirTemp("", "faas-infer-")
	if err == nil {
		l.sockets = made
		_ = os.Remove(l.socketsLink()) // It may not exist. If it cannot be removed, Symlink says so.
		err = os.Symlink(made, l.socketsLink())
	}
	if err != nil {
		return fmt.Errorf("directory for sockets: %w", err)
	}
	return nil
}

// ownAlone reports whether a path is a directory of this user that is closed to others.
func ownAlone(path string) bool {
	var info unix.Stat_t
	err := unix.Lstat(path, &info)
	return err == nil && info.Mode&unix.S_IFMT == unix.S_IFDIR && int(info.Uid) == os.Geteuid() && info.Mode&0o077 == 0
}

// closeSockets removes that directory if it is empty.
func (l *layout) closeSockets() {
	if l.sockets != "" && os.Remove(l.sockets) == nil {
		_ = os.Remove(l.socketsLink()) // A link that is left leads nowhere.
	}
}

func (l layout) socketsLink() string { return filepath.Join(l.dir, "sockets") }

func (l layout) lock() string      { return filepath.Join(l.dir, "lock") }
func (l layout) logs() string      { return filepath.Join(l.dir, "logs") }
func (l layout) instances() string { return filepath.Join(l.dir, "instances") }

func (l layout) instance(id cluster.InstanceID) string {
	return filepath.Join(l.instances(), string(id))
}

func (l layout) socket(id cluster.InstanceID) string {
	if l.sockets != "" {
		return filepath.Join(l.sockets, string(id))
	}
	return filepath.Join(l.instance(id), "socket")
}

// mark returns the environment entry that distinguishes the processes of one instance
// from all others of the machine.
func (l layout) mark(id cluster.InstanceID) string {
	return "FAAS_INFER_INSTANCE=" + l.instance(id)
}

// create writes an instance's first record. From then on the next provider takes it over.
func (l layout) create(r record) error {
	return l.write(r, filepath.Join(l.instance(r.Spec.ID), "instance.json"))
}

// replace writes a later record atomically: either the old one or the new one exists at
// any time.
func (l layout) replace(r record) error {
	path := filepath.Join(l.instance(r.Spec.ID), "instance.json")
	if err := l.write(r, path+".new"); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("state of %s: %w", r.Spec.ID, err)
	}
	return nil
}

func (l layout) write(r record, path string) error {
	encoded, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("state of %s: %w", r.Spec.ID, err)
	}
	if err := os.WriteFile(path, encoded, 0o600); err != nil {
		return fmt.Errorf("state of %s: %w", r.Spec.ID, err)
	}
	return nil
}

func (l layout) read(id cluster.InstanceID) (record, error) {
	var r record
	encoded, err := os.ReadFile(filepath.Join(l.instance(id), "instance.json"))
	if err != nil {
		return r, fmt.Errorf("state of %s: %w", id, err)
	}
	if err := json.Unmarshal(encoded, &r); err != nil {
		return r, fmt.Errorf("state of %s: %w", id, err)
	}
	if r.Spec.ID != id {
		return r, fmt.Errorf("state of %s belongs to %q", id, r.Spec.ID)
	}
	return r, nil
}

// list returns the instances that have a directory.
func (l layout) list() ([]cluster.InstanceID, error) {
	entries, err := os.ReadDir(l.instances())
	if err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	ids := make([]cluster.InstanceID, 0, len(entries))
	for _, entry := range entries {
		ids = append(ids, cluster.InstanceID(entry.Name()))
	}
	return ids, nil
}

// remove deletes an instance's directory and socket.
func (l layout) remove(id cluster.InstanceID) error {
	// Beside the socket may be that of a shadow's relay.
	for _, socket := range []string{l.socket(id), l.socket(id) + ".relay"} {
		if err := l.removeAll(socket); err != nil {
			return fmt.Errorf("remove socket of %s: %w", id, err)
		}
	}
	if err := l.removeAll(l.instance(id)); err != nil {
		return fmt.Errorf("remove state of %s: %w", id, err)
	}
	return nil
}

// save writes an instance's record for the next provider. If that fails, it is tried again: a full
// disk must not keep an instance from a quota that it has already. It is called with pinning held.
func (e *entry) save() {
	err := e.backend.layout.replace(e.record)
	if err != nil && !e.unsaved {
		e.backend.log.Error().Err(err).Dur("retry_ms", tidyInterval).
			Msg("cannot record an instance's state; trying again; until then the next provider takes it for what it was before")
	}
	e.unsaved = err != nil
}

// saveRecords writes the records that could not be written before.
func (b *Backend) saveRecords() {
	b.pinning.Lock()
	defer b.pinning.Unlock()
	b.mu.Lock()
	entries := slices.Collect(maps.Values(b.entries))
	b.mu.Unlock()
	for _, e := range entries {
		if e.unsaved && !e.removing && !isClosed(e.gone) {
			e.save()
		}
	}
}
