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
	// startTimeout is how long a program may take until it says what it takes and gives.
	startTimeout = 30 * time.Second
	// leaving is how long it may take to end when it is asked to.
	leaving = time.Second
	// dying is how long the end of a program that has closed its socket may take.
	dying = time.Second
)

// Why a program is ended.
var (
	errHangs    = errors.New("did not answer in time and was ended")
	errNonsense = errors.New("sent what is no message and was ended")
)

// program is a handler's process. Its descriptor 3 is the socket that it is asked by.
type program struct {
	child  *engine.Child
	socket net.Conn
	signature
}

// start starts a program and has it say what it takes and gives.
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

// pair is a pair of sockets that are connected to each other.
func pair() (ours net.Conn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	own, theirs := os.NewFile(uintptr(fds[0]), "handler"), os.NewFile(uintptr(fds[1]), "instance")
	defer own.Close() // FileConn has a descriptor of its own.
	if ours, err = net.FileConn(own); err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return ours, theirs, nil
}

// environment is that of a program: ours, and how many threads it may compute on.
func environment(threads int) []string {
	env := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return name == "FAAS_INFER_READY_FD" || name == "GOMAXPROCS"
	})
	return append(env, "GOMAXPROCS="+strconv.Itoa(threads))
}

// validate puts the batch before the shapes that a program has told, which are those of
// a row.
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

// ask has the program do a call, until then. An error of the program's own is [errAnswer];
// after any other the program is of no use any more.
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
		return nil, errAnswer{fmt.Errorf("the handler's %s: %w", named[call], err)}
	}
	return out, nil
}

// named are the calls as a handler's author calls them.
var named = map[string]string{pre: "Pre", post: "Post"}

// errAnswer is what a program answered, or did not: its batch's error and nobody else's.
type errAnswer struct{ error }

// Unwrap returns why.
func (e errAnswer) Unwrap() error { return e.error }

// lost ends a program that cannot be talked to and says why it cannot.
func (p *program) lost(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = errHangs
	}
	if errors.Is(err, errHangs) || errors.Is(err, errNonsense) {
		return errors.Join(fmt.Errorf("the handler %w", err), p.end(0))
	}
	gone := false
	select { // Its end is not far.
	case <-p.child.Exited():
		gone = true
	case <-time.After(dying):
	}
	failed := p.end(0) // After it, all that it said is there.
	if !gone {
		if errors.Is(err, io.EOF) {
			err = errors.New("closed its socket")
		}
		return errors.Join(fmt.Errorf("the handler %w", err), failed)
	}
	why := "the handler " + p.child.How()
	if said := reason(p.child.How(), p.child.Last()); said != "" {
		why += ": " + said
	}
	return errors.Join(errors.New(why), failed)
}

// crashed is how a program in Go ends that panicked, as [engine.Child.How] has it.
const crashed = "exited with status 2"

// reason picks from the last lines that a program printed the one that says why it ended:
// the last one, or that of Go's panic, which is followed by where that was.
func reason(how string, lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	if how == crashed {
		for _, line := range slices.Backward(lines) {
			if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
				return line
			}
		}
	}
	return lines[len(lines)-1]
}

// end ends the program, which is given so long to leave.
func (p *program) end(patience time.Duration) error {
	return errors.Join(p.socket.Close(), p.child.End(patience))
}
