package standby

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/instance/shared"
)

// What a standby says to its keeper.
const (
	ready = "ready"
	taken = "taken"
)

// Became is the order of the instance that this process has become.
type Became struct {
	Order
	conn *net.UnixConn
	// Report is the descriptor for the report that the instance is ready, 0 for none.
	Report int
}

// UntilEnd returns a context that ends with ctx, or at the end of in: the provider's end closes it.
func UntilEnd(ctx context.Context, in io.Reader) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	return ctx, cancel
}

// Initialise returns what initialise does. If ctx ends before, it reports false and does not wait: the
// process ends, whatever CUDA does.
func Initialise(ctx context.Context, initialise func() error) (done bool, err error) {
	result := make(chan error, 1)
	go func() { result <- initialise() }()
	select {
	case err := <-result:
		return true, err
	case <-ctx.Done():
		return false, nil
	}
}

// Await listens at socket, writes "ready\n" to out, and waits for the first process of this user that
// hands its order over. It writes "taken\n" to out, and this process then has that one's output, control groups and cores. The caller
// runs the order, with the environment and in the directory that it names. Without an order before ctx
// ends, the result is nil. If healthy returns an error, an order comes too late: nothing is adopted, and
// the other process becomes the instance itself.
func Await(ctx context.Context, socket string, out io.Writer, healthy func() error) (*Became, error) {
	_ = os.Remove(socket) // It is of a standby that was killed, if there is one.
	var config net.ListenConfig
	l, err := config.Listen(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	if _, err := io.WriteString(out, ready+"\n"); err != nil {
		return nil, err
	}
	for {
		conn, err := l.Accept()
		if ctx.Err() != nil {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if err := healthy(); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		b, err := receive(conn.(*net.UnixConn), out)
		if err == nil {
			return b, nil
		}
		fmt.Fprintf(os.Stderr, "a hand-over failed: %v\n", err)
		_ = conn.Close()
	}
}

// receive takes an order and adopts its process's surroundings.
func receive(conn *net.UnixConn, out io.Writer) (*Became, error) {
	pid, err := shared.Owner(conn)
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(handOver)); err != nil {
		return nil, err
	}
	fds, err := descriptors(conn)
	if err != nil {
		return nil, err
	}
	b := &Became{conn: conn}
	in := bufio.NewReader(io.LimitReader(conn, maxOrder))
	line, err := in.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &b.Order)
	}
	if want := 1; err == nil {
		if b.Ready {
			want = 2
		}
		if len(fds) != want {
			err = fmt.Errorf("%d descriptors came, not %d", len(fds), want)
		}
	}
	if err == nil {
		err = adopt(pid)
	}
	if err == nil {
		_, _ = io.WriteString(out, taken+"\n") // The keeper may be gone.
		err = errors.Join(unix.Dup3(fds[0], 1, 0), unix.Dup3(fds[0], 2, 0), conn.SetDeadline(time.Time{}))
	}
	if err != nil {
		shared.CloseAll(fds)
		return nil, err
	}
	shared.CloseAll(fds[:1])
	if b.Ready {
		b.Report = fds[1]
	}
	if _, err := conn.Write([]byte{0}); err != nil {
		shared.CloseAll(fds[1:])
		return nil, err
	}
	return b, nil
}

// descriptors reads the byte that carries the order's descriptors.
func descriptors(conn *net.UnixConn) ([]int, error) {
	var one [1]byte
	_, fds, err := shared.Receive(conn, one[:], 2)
	if err == nil && len(fds) == 0 {
		err = errors.New("the order came without its descriptors")
	}
	return fds, err
}

// Follow works in the background until [Became.Exit]. It ends the context when the instance's first
// process passes a signal on. If that process is gone, Follow calls lost, which ends this one: whoever
// looks at the instance sees it as exited.
func (b *Became) Follow(cancel context.CancelFunc, lost func()) { go b.follow(cancel, lost) }

func (b *Became) follow(cancel context.CancelFunc, lost func()) {
	var signal [1]byte
	for {
		_, err := io.ReadFull(b.conn, signal[:])
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			lost()
			return
		case signal[0] == byte(syscall.SIGTERM):
			cancel()
		}
	}
}

// Exit tells the instance's first process the code to exit with.
func (b *Became) Exit(code int) error {
	_, err := b.conn.Write([]byte{byte(code)})
	return errors.Join(err, b.conn.Close())
}
