package cuda

/*
#include "session.h"
*/
import "C"

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/backoff"
	"github.com/faas-infer/faas-infer/filelock"
	memory "github.com/faas-infer/faas-infer/instance/shared"
)

// shared passes a region on to processes of the same user that have the same copy of a model on the same
// device. One of the processes that have it listens at a socket beside the copy; if that one
// ends, another one takes its place. The driver frees the memory with the last of them.
type shared struct {
	offer
	descriptor int
	imported   bool
	dir        *os.File
	name       string

	ctx  context.Context
	end  context.CancelFunc
	work sync.WaitGroup
}

// offer says what a region has. It goes with the descriptor.
type offer struct {
	// Model is the hash of the copy's graph, Layout the size in bytes of what is placed in the region, and
	// Bytes that of the region.
	Model  string `json:"model"`
	Layout int    `json:"layout"`
	Bytes  int64  `json:"bytes"`
}

// patience bounds the wait for another process that answers. One that fills a region may take as long
// again for each 200 MB.
const patience = 2 * time.Second

// share finds the region of the engine's copy at another process, or makes it, lets fill write the
// weights, and passes it on from then on. After an error the caller closes r.
func share(ctx context.Context, e *Engine, size int, r *C.region, fill func() error) (s *shared, err error) {
	_, id, err := deviceIdentity()
	if err != nil {
		return nil, err
	}
	is, err := e.copy.describe(e.copy.dir)
	if err != nil {
		return nil, err
	}
	dir, err := os.Open(filepath.Dir(e.copy.dir))
	if err != nil {
		return nil, err
	}
	// The copy's own directory may be replaced.
	s = &shared{dir: dir, name: "weights-" + strings.TrimPrefix(filepath.Base(e.copy.dir), "cuda-") + "-" + id, offer: offer{Model: is.Model, Layout: size}}
	s.ctx, s.end = context.WithCancel(context.Background())
	stop := context.AfterFunc(ctx, s.end)
	defer stop()
	unlock, err := s.lock(patience + time.Duration(size)*10*time.Nanosecond)
	if err == nil {
		err = s.obtain(e, r, fill)
		unlock()
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// obtain imports the region or makes it. The caller holds the lock.
func (s *shared) obtain(e *Engine, r *C.region, fill func() error) error {
	owner, got, descriptor, err := s.ask()
	if err == nil {
		r.bytes = C.size_t(got.Bytes)
		if err = failed(C.region_import(e.c, C.int(descriptor), r)); err == nil {
			s.Bytes, s.descriptor, s.imported = got.Bytes, descriptor, true
			s.follow(owner)
			return nil
		}
		_ = owner.Close()
		C.region_close(e.c, r)
		return err
	}
	if !errors.Is(err, errNobody) {
		return err
	}
	if err := failed(C.region_make(e.c, C.size_t(s.Layout), r)); err != nil {
		return err
	}
	if err := fill(); err != nil {
		return err
	}
	// Some drivers know no memory that can only be read.
	_ = failed(C.region_seal(r))
	s.Bytes, s.descriptor = int64(r.bytes), int(r.descriptor)
	return s.listen()
}

// path is the socket's. It is short, however long the directory's is.
func (s *shared) path() string { return fmt.Sprintf("/proc/self/fd/%d/%s.sock", s.dir.Fd(), s.name) }

// lock keeps other processes from looking for the region until unlock is called. It waits so long for
// one that does.
func (s *shared) lock(patience time.Duration) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(s.dir.Name(), s.name+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := filelock.Lock(s.ctx, f, filelock.Exclusive, patience); err != nil {
		return nil, errors.Join(fmt.Errorf("another process prepares the weights: %w", err), f.Close())
	}
	return func() { _ = f.Close() }, nil
}

// errNobody: no process passes the region on.
var errNobody = errors.New("no process has the weights")

// ask gets the region's descriptor from the process that listens. Its connection ends with that process.
func (s *shared) ask() (owner *net.UnixConn, got offer, descriptor int, err error) {
	d := net.Dialer{Timeout: patience}
	conn, err := d.DialContext(s.ctx, "unix", s.path())
	if err != nil {
		return nil, got, -1, fmt.Errorf("%w: %w", errNobody, err)
	}
	owner = conn.(*net.UnixConn)
	defer func() {
		if err != nil {
			_ = conn.Close()
		}
	}()
	_, err = memory.Owner(owner)
	if err = errors.Join(err, owner.SetDeadline(time.Now().Add(patience))); err != nil {
		return nil, got, -1, err
	}
	text := make([]byte, 1024)
	n, fds, err := memory.Receive(owner, text, 1)
	if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) {
		return nil, got, -1, fmt.Errorf("%w: it is ending", errNobody)
	}
	if err != nil {
		return nil, got, -1, err
	}
	if len(fds) == 0 {
		return nil, got, -1, errors.New("the weights came without a descriptor")
	}
	descriptor = fds[0]
	err = json.Unmarshal(text[:n], &got)
	if err == nil && (got.Model != s.Model || got.Layout != s.Layout || got.Bytes < int64(got.Layout)) {
		err = fmt.Errorf("another process has other weights, %+v, not %+v", got, s.offer)
	}
	if err = errors.Join(err, owner.SetDeadline(time.Time{})); err != nil {
		return nil, got, -1, errors.Join(err, unix.Close(descriptor))
	}
	return owner, got, descriptor, nil
}

// listen passes the region on. The caller holds the lock, and nobody else listens.
func (s *shared) listen() error {
	_ = os.Remove(s.path()) // It is of a process that was killed, if it is there.
	var config net.ListenConfig
	l, err := config.Listen(s.ctx, "unix", s.path())
	if err != nil {
		return err
	}
	stop := context.AfterFunc(s.ctx, func() { _ = l.Close() })
	s.work.Go(func() {
		defer stop()
		defer l.Close()
		for s.ctx.Err() == nil {
			c, err := l.Accept()
			if err != nil { // Such as too many open files.
				backoff.Wait(s.ctx, 100*time.Millisecond)
				continue
			}
			s.work.Go(func() { s.pass(c.(*net.UnixConn)) })
		}
	})
	return nil
}

// pass gives the region to a process, and keeps the connection until that one ends or this one does.
func (s *shared) pass(c *net.UnixConn) {
	defer c.Close()
	stop := context.AfterFunc(s.ctx, func() { _ = c.Close() })
	defer stop()
	text, err := json.Marshal(s.offer)
	_, other := memory.Owner(c)
	if err = errors.Join(err, other, c.SetWriteDeadline(time.Now().Add(patience))); err != nil {
		return
	}
	if err := memory.Pass(c, text, s.descriptor); err != nil {
		return
	}
	var one [1]byte
	_, _ = c.Read(one[:])
}

// follow takes the place of the process that listens when that one ends, unless another one did.
func (s *shared) follow(owner *net.UnixConn) {
	s.work.Go(func() {
		for owner != nil {
			stop := context.AfterFunc(s.ctx, func() { _ = owner.Close() })
			var one [1]byte
			_, _ = owner.Read(one[:]) // Until that process ends.
			stop()
			_ = owner.Close()
			if s.ctx.Err() != nil {
				return
			}
			owner = s.succeed()
		}
	})
}

// succeed listens, or returns the connection to a process that does already.
func (s *shared) succeed() *net.UnixConn {
	unlock, err := s.lock(patience)
	if err != nil {
		return nil // The next process loads the weights once more.
	}
	defer unlock()
	next, _, descriptor, err := s.ask()
	if err == nil {
		_ = unix.Close(descriptor)
		return next
	}
	if errors.Is(err, errNobody) && s.ctx.Err() == nil {
		_ = s.listen()
	}
	return nil
}

// close ends the passing. The region's descriptor is closed with the region.
func (s *shared) close() {
	s.end()
	s.work.Wait()
	_ = s.dir.Close()
}

// deviceIdentity is the name of the process's first GPU, and its UUID in hexadecimal digits.
func deviceIdentity() (name, id string, err error) {
	var text [256]C.char
	var uuid [16]C.uchar
	var memory C.size_t
	err = failed(C.device_describe(0, &text[0], C.int(len(text)), &uuid[0], &memory))
	var b [16]byte
	for i := range uuid {
		b[i] = byte(uuid[i])
	}
	return C.GoString(&text[0]), hex.EncodeToString(b[:]), err
}
