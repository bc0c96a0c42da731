package local

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/local/process"
)

// record is an instance.json: all that a next provider must know. An instance's
// directory is made before anything else of it, this file once its process
// runs. So a directory without a readable one tells that its instance is half
// made, and its name is enough to find and remove the rest.
//
// Files are not forced to the disk: they have to survive a killed provider, and
// after a power cut there are no processes to take over.
type record struct {
	Spec cluster.InstanceSpec `json:"spec"`
	// Process is who it is; nil where the file could not be read.
	Process *process.Identity `json:"process"`
	Socket  string            `json:"socket"`
	// Cgroup tells whether the instance lives in the cgroup of its name.
	Cgroup bool `json:"cgroup"`
	// User is whom a function's processes run as, 0 for the provider's user.
	User int `json:"user,omitempty"`
	// Cores are those that it has for itself.
	Cores     []int     `json:"cores,omitempty"`
	StartedAt time.Time `json:"startedAt"`
	ReadyAt   time.Time `json:"readyAt"`
}

// layout is where things lie below Options.Dir.
type layout struct {
	dir     string
	sockets string
}

// longestSocket is what fits into a sockaddr_un with its terminating zero.
const longestSocket = 107

// lay makes the state directory. Sockets lie with the rest of their instance
// unless their paths could become longer than the kernel takes; then they lie
// in a directory of this user's in the system's place for temporary files,
// which openSockets makes.
func lay(dir string) (layout, error) {
	l := layout{dir: dir}
	if err := os.MkdirAll(l.instances(), 0o700); err != nil {
		return l, fmt.Errorf("state directory: %w", err)
	}
	const longestID = 63
	if len(l.instances())+1+longestID+len("/socket") > longestSocket {
		l.sockets = filepath.Join(os.TempDir(), fmt.Sprintf("faas-infer-%d-%s", os.Geteuid(), shortHash(dir)))
	}
	return l, nil
}

// openSockets makes the directory for sockets, if there is to be one, and
// refuses one that somebody else could have put there. To be called by the
// holder of the lock only, who may call closeSockets later.
func (l layout) openSockets() error {
	if l.sockets == "" {
		return nil
	}
	if err := os.MkdirAll(l.sockets, 0o700); err != nil {
		return fmt.Errorf("directory for sockets: %w", err)
	}
	var info unix.Stat_t
	if err := unix.Lstat(l.sockets, &info); err != nil {
		return fmt.Errorf("directory for sockets: %w", err)
	}
	if info.Mode&unix.S_IFMT != unix.S_IFDIR || int(info.Uid) != os.Geteuid() || info.Mode&0o077 != 0 {
		return fmt.Errorf("directory for sockets %s belongs to or is open to others", l.sockets)
	}
	return nil
}

// closeSockets removes that directory if there is nothing in it.
func (l layout) closeSockets() {
	if l.sockets != "" {
		_ = os.Remove(l.sockets)
	}
}

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

// mark is the environment entry that tells the processes of one instance from
// all others of the machine.
func (l layout) mark(id cluster.InstanceID) string {
	return "FAAS_INFER_INSTANCE=" + l.instance(id)
}

// create writes an instance's first record, with which it becomes one that a
// next provider takes over.
func (l layout) create(r record) error {
	return l.write(r, filepath.Join(l.instance(r.Spec.ID), "instance.json"))
}

// replace writes a later record. At no instant is there neither the old one
// nor the new.
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
		return r, fmt.Errorf("state of %s is that of %q", id, r.Spec.ID)
	}
	return r, nil
}

// list names the instances that have a directory.
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
	if err := os.RemoveAll(l.socket(id)); err != nil {
		return fmt.Errorf("remove socket of %s: %w", id, err)
	}
	if err := os.RemoveAll(l.instance(id)); err != nil {
		return fmt.Errorf("remove state of %s: %w", id, err)
	}
	return nil
}
