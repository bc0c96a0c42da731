package processing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/instance/engine"
	"github.com/faas-infer/faas-infer/model/tensor"
)

const (
	// startTimeout is how long a program may take to send its signature.
	startTimeout = 30 * time.Second
	// stopTimeout is how long a program may take to exit when it is asked to.
	stopTimeout = time.Second
	// exitTimeout is how long a program that has closed its socket may take to exit.
	exitTimeout = time.Second
)

// The reasons to stop a program.
var (
	errHangs    = errors.New("did not answer in time and was stopped")
	errNonsense = errors.New("sent an invalid message and was stopped")
)

// program is a handler's process. Its file descriptor 3 is the socket for calls.
type program struct {
	child  *engine.Child
	socket net.Conn
	signature
}

// start starts a program and reads its signature.
func start(ctx context.Context, o Options) (*program, error) {
	ours, theirs, err := pair()
	if err != nil {
		return nil, fmt.Errorf("a socket for the handler: %w", err)
	}
	path := filepath.Join(o.Prepared.Dir, o.Prepared.Handler)
	c, err := engine.StartChild(engine.ChildOptions{
		Argv: []string{path}, Dir: o.Prepared.Dir, Env: environment(o.Threads), Log: o.Log, Files: []*os.File{theirs},
	})
	theirs.Close()
	if err != nil {
		return nil, errors.Join(err, ours.Close())
	}
	p := &program{child: c, socket: ours}
	stop := context.AfterFunc(ctx, func() { _ = ours.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	err = ours.SetDeadline(time.Now().Add(startTimeout))
	if err == nil {
		err = receiveHead(ours, &p.signature)
	}
	if err == nil {
		err = p.validate()
	}
	if err != nil {
		return nil, fmt.Errorf("start the handler %s: %w", o.Prepared.Handler, errors.Join(ctx.Err(), p.lost(err)))
	}
	return p, nil
}

// pair returns two connected sockets.
func pair() (ours net.Conn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	own, theirs := os.NewFile(uintptr(fds[0]), "handler"), os.NewFile(uintptr(fds[1]), "instance")
	defer own.Close() // FileConn duplicates the descriptor.
	if ours, err = net.FileConn(own); err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return ours, theirs, nil
}

// environment returns a program's environment: this process's, with GOMAXPROCS set to
// the number of threads.
func environment(threads int) []string {
	env := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return name == "FAAS_INFER_READY_FD" || name == "GOMAXPROCS"
	})
	return append(env, "GOMAXPROCS="+strconv.Itoa(threads))
}

// validate checks a program's signature. It also puts the batch dimension before the
// shapes, which the program sends without it.
func (p *program) validate() error {
	for _, infos := range [][]tensor.Info{p.Inputs, p.Outputs} {
		for i, info := range infos {
			if info.Name == "" || info.Type.Size() == 0 {
				return fmt.Errorf("%w: a tensor %q of the type %q", errNonsense, info.Name, info.Type)
			}
			if slices.ContainsFunc(info.Shape, func(d int64) bool { return d == 0 || d < -1 }) {
				return fmt.Errorf("%w: %q with rows of the shape %v", errNonsense, info.Name, info.Shape)
			}
			infos[i].Shape = append([]int64{-1}, info.Shape...)
		}
	}
	return nil
}

// ask sends a call and reads the answer, within the deadline until. An [errAnswer] leaves
// the program usable. After any other error the program must be stopped.
func (p *program) ask(call string, rows int, given []tensor.Tensor, wanted []tensor.Info, until time.Time) ([]tensor.Tensor, error) {
	if err := p.socket.SetDeadline(until); err != nil {
		return nil, err
	}
	if err := send(p.socket, call, rows, given); err != nil {
		return nil, err
	}
	h, data, err := receive(p.socket)
	if err != nil {
		return nil, err
	}
	if h.Error != "" {
		return nil, errAnswer{errors.New(h.Error)}
	}
	out, err := fit(wanted, rows, h, data)
	if err != nil {
		return nil, errAnswer{fmt.Errorf("the handler's %s: %w", methods[call], err)}
	}
	return out, nil
}

// methods are the handler's methods by call.
var methods = map[string]string{pre: "Pre", post: "Post"}

// errAnswer is an error that concerns only its batch: the program returned an error or
// the wrong tensors.
type errAnswer struct{ error }

// Unwrap returns the error inside.
func (e errAnswer) Unwrap() error { return e.error }

// lost stops a program after a failed exchange and says what happened to it.
func (p *program) lost(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = errHangs
	}
	if errors.Is(err, errHangs) || errors.Is(err, errNonsense) {
		return errors.Join(fmt.Errorf("the handler %w", err), p.end(0))
	}
	gone := false
	select { // A program that closes its socket usually exits.
	case <-p.child.Exited():
		gone = true
	case <-time.After(exitTimeout):
	}
	failed := p.end(0) // Afterwards its output is complete.
	if !gone {
		if errors.Is(err, io.EOF) {
			err = errors.New("closed its socket")
		}
		return errors.Join(fmt.Errorf("the handler %w", err), failed)
	}
	return errors.Join(errors.New("the handler "+p.child.Why()), failed)
}

// end closes the socket and stops the program. patience is how long it may take to exit
// before it is killed.
func (p *program) end(patience time.Duration) error {
	return errors.Join(p.socket.Close(), p.child.End(patience))
}
