package fetch

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/backoff"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/source/origin"
)

const (
	// maxAttempts is how often in a row a download may break without a byte.
	maxAttempts = 5
	// firstPause is the pause before the second attempt. It doubles up to maxPause.
	firstPause, maxPause = 100 * time.Millisecond, 5 * time.Second
	// block is how many bytes are read and hashed at a time, and depth how many such blocks wait.
	block, depth = 1 << 20, 4
)

// download brings an object into a file, verifies it and returns its hash. It goes on with what an earlier attempt
// has left there.
func (c *Cache) download(ctx context.Context, o *origin.Object, part string, b *budget,
	p *Progress) (h *model.Hasher, err error) {
	f, err := os.OpenFile(part, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, roomError(err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	t := &transfer{cache: c, object: o, file: f, note: part + ".json", budget: b, shown: p}
	if err := t.begin(); err != nil {
		return nil, roomError(err)
	}
	defer func() {
		if err != nil && t.here != t.kept {
			err = errors.Join(err, t.keep())
		}
	}()
	pause := firstPause
	for failures := 0; ; {
		before := t.here
		err := t.attempt(ctx)
		if err == nil {
			break
		}
		if t.here > before {
			failures, pause = 0, firstPause
		}
		failures++
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if stop := new(origin.Fatal); errors.As(err, stop) || failures == maxAttempts {
			return nil, err
		}
		if t.here-before >= block {
			continue // A connection that carried much needs no pause before the next.
		}
		if !backoff.Wait(ctx, pause) {
			return nil, ctx.Err()
		}
		pause = min(2*pause, maxPause)
	}
	sum := t.sha.Sum()
	wrong := error(nil)
	switch {
	case o.Sum != "" && o.Sum != sum:
		wrong = fmt.Errorf("the server sent content with the SHA-256 %s, and it must be %s; ask whoever "+
			"gave you the URI which of them is right", sum, o.Sum)
	case t.md5 != nil && o.MD5 != "" && hex.EncodeToString(t.md5.Sum(nil)) != o.MD5:
		wrong = errors.New("the content that arrived has another MD5 than the server's ETag says; deploy again")
	}
	if wrong != nil {
		return nil, errors.Join(wrong, t.again())
	}
	return t.sha, nil
}

// transfer is a download of one object.
type transfer struct {
	cache  *Cache
	object *origin.Object
	file   *os.File
	// note is the file that says of which state of the object the bytes are.
	note string
	// here is the number of bytes in the file, which sha and md5 have hashed; md5 is nil if nobody knows what it
	// must be.
	here int64
	sha  *model.Hasher
	md5  hash.Hash
	// kept is how many bytes were noted last.
	kept   int64
	budget *budget
	shown  *Progress
}

// state is what is noted beside unfinished bytes. Here is how many of them are on the disk for sure.
type state struct {
	Tag, Sum string
	Here     int64
}

// syncEvery is after how many bytes of a download its state is noted.
const syncEvery = 256 << 20

// keep brings the bytes to the disk and notes that they are there.
func (t *transfer) keep() error {
	if err := t.file.Sync(); err != nil {
		return err
	}
	text, err := json.Marshal(state{t.object.Tag, t.object.Sum, t.here})
	if err != nil {
		return err
	}
	if err := os.WriteFile(t.note+".new", text, 0o600); err != nil {
		return err
	}
	t.kept = t.here
	return os.Rename(t.note+".new", t.note)
}

// begin takes over what an earlier process has left of the same content.
func (t *transfer) begin() error {
	o := t.object
	var was state
	text, err := os.ReadFile(t.note)
	same := err == nil && json.Unmarshal(text, &was) == nil && was.Tag == o.Tag && was.Sum == o.Sum &&
		(o.Tag != "" || o.Sum != "")
	t.reset()
	if info, failed := t.file.Stat(); failed != nil || info.Size() < was.Here {
		same = false
	}
	if !same {
		was.Here = 0
	}
	if err := t.file.Truncate(was.Here); err != nil { // What came later may have holes after a crash.
		return err
	}
	if !same {
		return t.keep()
	}
	n, err := io.Copy(t.hashes(), t.file)
	t.here = n
	t.shown.add(n)
	err = errors.Join(err, t.budget.download(n))
	if err == nil && o.Size >= 0 && n > o.Size {
		return t.again()
	}
	return err
}

// reset forgets the hashes.
func (t *transfer) reset() {
	t.here, t.sha, t.md5 = 0, model.NewHasher(), nil
	if t.object.Sum == "" && t.object.MD5 != "" {
		t.md5 = md5.New()
	}
}

// again forgets all bytes.
func (t *transfer) again() error {
	t.shown.add(-t.here)
	_ = t.budget.download(-t.here) // Less is never too much.
	t.reset()
	if _, err := t.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := t.file.Truncate(0); err != nil {
		return err
	}
	return t.keep()
}

// hashes are the hashes as one writer.
func (t *transfer) hashes() io.Writer {
	if t.md5 == nil {
		return t.sha
	}
	return io.MultiWriter(t.sha, t.md5)
}

// attempt brings the missing bytes over one connection.
func (t *transfer) attempt(ctx context.Context) (err error) {
	o := t.object
	if o.Size >= 0 && t.here == o.Size {
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	body, from := o.First, int64(0)
	o.First = nil
	if body != nil && t.here > 0 {
		_ = body.Close() // Some bytes are here already.
		body = nil
	}
	watch := time.AfterFunc(t.cache.options.Stall, func() { cancel(errStalled) })
	defer watch.Stop()
	if body == nil {
		if body, from, err = o.Open(ctx, t.here); err != nil {
			return t.cause(ctx, err)
		}
	}
	defer body.Close()
	if from != 0 && from != t.here {
		return origin.Fatal{Err: fmt.Errorf("the server sends the bytes from %d on, and was asked for those from "+
			"%d on", from, t.here)}
	}
	if from != t.here {
		if err := t.again(); err != nil {
			return origin.Fatal{Err: roomError(err)}
		}
	}
	err = t.copy(ctx, body, func() { watch.Reset(t.cache.options.Stall) }, watch.Stop)
	if err == nil && o.Size >= 0 && t.here < o.Size {
		err = fmt.Errorf("the server ended its answer after %d of %d bytes", t.here, o.Size)
	}
	return t.cause(ctx, err)
}

// errStalled ends an attempt whose server sends nothing.
var errStalled = errors.New("the server sends nothing")

// cause replaces an error by the reason why the attempt was ended.
func (t *transfer) cause(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errStalled) {
		return fmt.Errorf("the server has sent nothing for %v after %d bytes, several times; deploy "+
			"again once it does", t.cache.options.Stall, t.here)
	}
	return err
}

// filled is a block that was read.
type filled struct {
	bytes []byte
	err   error
}

// copy writes and hashes what a body has, while it reads on. alive is called for each block that arrives, and
// idle when
// the disk is what is waited for.
func (t *transfer) copy(ctx context.Context, body io.ReadCloser, alive func(), idle func() bool) error {
	free, full := make(chan []byte, depth), make(chan filled, depth)
	for range depth {
		free <- make([]byte, block)
	}
	stop := context.AfterFunc(ctx, func() { _ = body.Close() }) // A read that hangs ends, of any kind of body.
	defer stop()
	var reading sync.WaitGroup
	defer reading.Wait()
	over := make(chan struct{})
	defer close(over)
	reading.Go(func() {
		defer close(full)
		for {
			var buffer []byte
			select {
			case buffer = <-free:
			case <-over:
				return
			}
			alive()
			n, err := fill(body, buffer, alive)
			idle()
			select {
			case full <- filled{buffer[:n], err}:
			case <-over:
				return
			}
			if err != nil {
				return
			}
		}
	})
	for got := range full {
		if err := t.take(got.bytes); err != nil {
			_ = body.Close()
			return origin.Fatal{Err: roomError(err)}
		}
		free <- got.bytes[:block]
		switch {
		case errors.Is(got.err, io.EOF):
			return nil
		case got.err != nil:
			return fmt.Errorf("the connection broke after %d bytes: %w", t.here, got.err)
		}
	}
	return ctx.Err()
}

// fill reads until the buffer is full or the body ends.
func fill(body io.Reader, buffer []byte, alive func()) (n int, err error) {
	for n < len(buffer) && err == nil {
		var more int
		more, err = body.Read(buffer[n:])
		if n += more; more > 0 {
			alive()
		}
	}
	return n, err
}

// take writes a block and adds it to the hashes, at the same time.
func (t *transfer) take(bytes []byte) error {
	size := t.here + int64(len(bytes))
	if t.object.Size >= 0 && size > t.object.Size {
		return origin.Fatal{Err: fmt.Errorf("the server sends more than the %d bytes that it has announced", t.object.Size)}
	}
	if err := t.budget.download(int64(len(bytes))); err != nil {
		return err
	}
	var hashing sync.WaitGroup
	hashing.Go(func() { _, _ = t.sha.Write(bytes) })
	if t.md5 != nil {
		hashing.Go(func() { _, _ = t.md5.Write(bytes) })
	}
	n, err := t.file.WriteAt(bytes, t.here)
	hashing.Wait()
	if err != nil {
		return err
	}
	t.here += int64(n)
	t.shown.add(int64(n))
	if t.here-t.kept >= syncEvery {
		return t.keep()
	}
	return nil
}
