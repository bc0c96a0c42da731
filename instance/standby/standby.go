// Package standby turns a process that is ready, with CUDA's libraries and its context, into an
// instance. A process cannot fork with a CUDA context, and its share of a GPU is fixed when it makes
// the context. So a [Keeper] keeps one process for the share that was started last on each GPU. An
// instance's process begins with [Take]: it hands its command line, environment and descriptors over,
// and stays to pass signals on and to exit as the other does. The other, which [Await]s this, adopts
// them with its control groups and cores. Package standby opens no model: see package cuda.
package standby

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/faas-infer/faas-infer/instance/shared"
)

// Order is the instance that a standby becomes.
type Order struct {
	// Arguments are those of the program, Env is its environment, Dir its working directory.
	Arguments []string `json:"arguments"`
	Env       []string `json:"env"`
	Dir       string   `json:"dir"`
	// Ready reports whether a descriptor for the report that the instance is ready comes with the order.
	Ready bool `json:"ready"`
}

const (
	// handOver is the maximum time that a hand-over may take.
	handOver = 2 * time.Second
	// maxOrder is the maximum size of an order in bytes.
	maxOrder = 1 << 20
)

// SocketOf returns the path in dir of the standby for processes with this environment: it has a hash of
// the variables that ours reports, which say what share of which GPU a process has.
func SocketOf(dir string, env []string, ours func(name string) bool) string {
	last := map[string]string{}
	for _, entry := range env {
		if name, _, _ := strings.Cut(entry, "="); ours(name) {
			last[name] = entry
		}
	}
	hash := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(last)) {
		fmt.Fprintf(hash, "%q\n", last[name])
	}
	return filepath.Join(dir, hex.EncodeToString(hash.Sum(nil))[:16]+".sock")
}

// Taken is a standby that has become an instance.
type Taken struct{ conn *net.UnixConn }

// Take makes the standby at socket the process of an order. log and ready are its standard output and
// error, and the descriptor on which it reports that it is ready, 0 for none. After an error this
// process must become the instance itself.
func Take(socket string, o Order, log *os.File, ready int) (*Taken, error) {
	c, err := net.DialTimeout("unix", socket, handOver)
	if err != nil {
		return nil, fmt.Errorf("the standby: %w", err)
	}
	conn := c.(*net.UnixConn)
	if err := give(conn, o, log, ready); err != nil {
		return nil, errors.Join(fmt.Errorf("the standby: %w", err), conn.Close())
	}
	return &Taken{conn}, nil
}

func give(conn *net.UnixConn, o Order, log *os.File, ready int) error {
	if _, err := shared.Owner(conn); err != nil {
		return err
	}
	if err := conn.SetDeadline(time.Now().Add(handOver)); err != nil {
		return err
	}
	fds := []int{int(log.Fd())}
	if o.Ready = ready > 0; o.Ready {
		fds = append(fds, ready)
	}
	if err := shared.Pass(conn, []byte{0}, fds...); err != nil {
		return err
	}
	if err := json.NewEncoder(conn).Encode(o); err != nil {
		return err
	}
	var said [1]byte
	if _, err := io.ReadFull(conn, said[:]); err != nil {
		return err
	}
	return conn.SetDeadline(time.Time{})
}

// Wait passes SIGTERM on when ctx ends, and returns the code with which the instance exits. One that is
// killed exits with that of SIGKILL.
func (t *Taken) Wait(ctx context.Context) int {
	defer t.conn.Close()
	stop := context.AfterFunc(ctx, func() { _, _ = t.conn.Write([]byte{byte(syscall.SIGTERM)}) }) // It may have exited.
	defer stop()
	var code [1]byte
	if _, err := io.ReadFull(t.conn, code[:]); err != nil {
		return 128 + int(syscall.SIGKILL)
	}
	return int(code[0])
}
