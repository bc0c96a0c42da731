package content

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/backoff"
)

const (
	// stateTimeout is how long a receiver may take to say what it needs.
	stateTimeout = 5 * time.Second
	// statePause is the time between two questions while another process receives.
	statePause = 200 * time.Millisecond
	// maxRefusals is how often in a row a receiver may refuse what it gets.
	maxRefusals = 3
)

// ErrNoReceiver says that the server receives no content: an instance that has its model.
var ErrNoReceiver = errors.New("the instance waits for no model")

// ErrRefused says that a receiver does not accept what it gets, for example because its disk is full.
var ErrRefused = errors.New("the instance refuses the model's files")

// Source is a content on this machine.
type Source struct {
	Index Index
	// Dir has its files.
	Dir string
}

// Ask returns what the receiver at an address, "http://HOST:PORT", needs. The error wraps [ErrNoReceiver] if there is
// a server that is none.
func Ask(ctx context.Context, client *http.Client, address string) (State, error) {
	ctx, cancel := context.WithTimeout(ctx, stateTimeout)
	defer cancel()
	return exchange(ctx, client, http.MethodGet, address+Path, nil, 0)
}

// Send brings a content to the receiver at an address. It goes on with what is there, and returns when the receiver
// has everything. sent, if it is not nil, is called with the number of bytes that are on their way, and with 0 while
// the content arrives otherwise. A connection that breaks is an error: call Send again.
func Send(ctx context.Context, client *http.Client, address string, s Source, sent func(int64)) error {
	state, err := Ask(ctx, client, address)
	if err != nil {
		return err
	}
	if state.Name != s.Index.Name() {
		return fmt.Errorf("the instance waits for the content %s", state.Name)
	}
	for refusals := 0; ; {
		before := state
		switch state.Needs {
		case NeedsNothing:
			return nil
		case NeedsIndex:
			text := s.Index.text()
			body, size := bytes.NewReader(text), int64(len(text))
			state, err = exchange(ctx, client, http.MethodPut, address+IndexPath, body, size)
		case NeedsBytes:
			body := &reader{of: s, skip: state.From, sent: sent}
			path := address + BytesPath + "?from=" + strconv.FormatInt(state.From, 10)
			state, err = exchange(ctx, client, http.MethodPut, path, body, s.Index.Bytes()-state.From)
			_ = body.Close()
		default:
			if sent != nil {
				sent(0)
			}
			if !backoff.Wait(ctx, statePause) {
				return ctx.Err()
			}
			state, err = Ask(ctx, client, address)
			before = State{} // It waits for as long as the other one receives.
		}
		if errors.Is(err, ErrRefused) || err == nil && state == before {
			if refusals++; refusals < maxRefusals {
				state, err = Ask(ctx, client, address)
			} else if err == nil {
				err = fmt.Errorf("%w: it still needs %s from byte %d", ErrRefused, state.Needs, state.From)
			}
		}
		if err != nil {
			return err
		}
	}
}

// exchange sends a request and reads the state in the answer.
func exchange(ctx context.Context, client *http.Client, method, url string, body io.Reader, size int64) (s State, err error) {
	if size == 0 {
		body = nil
	}
	request, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return s, err
	}
	request.ContentLength = size
	answer, err := client.Do(request)
	if err != nil {
		return s, fmt.Errorf("send the model: %w", err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<12))
	switch {
	case err != nil:
		return s, fmt.Errorf("send the model: %w", err)
	case answer.StatusCode == http.StatusUnprocessableEntity:
		return s, fmt.Errorf("%w: %s", ErrRefused, strings.TrimSpace(string(text)))
	case answer.StatusCode >= http.StatusInternalServerError, answer.StatusCode == http.StatusUnauthorized:
		// A proxy before an instance that does not listen yet, or an instance that knows this sender not yet.
		return s, fmt.Errorf("send the model: it was answered %s", answer.Status)
	case answer.StatusCode != http.StatusOK || json.Unmarshal(text, &s) != nil || s.Needs == "":
		return s, fmt.Errorf("%w: it answered %s", ErrNoReceiver, answer.Status)
	}
	return s, nil
}

// reader reads the bytes of all files, one after another. A client may read on after the answer has come, so Close may
// be called meanwhile.
type reader struct {
	of   Source
	sent func(int64)

	mu     sync.Mutex
	closed bool
	at     int
	file   *os.File
	// skip is how many bytes are left out, and left how many the present file has yet.
	skip, left int64
}

func (r *reader) Read(into []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return 0, os.ErrClosed
	}
	for r.file == nil || r.left == 0 {
		if err := r.next(); err != nil {
			return 0, err
		}
	}
	n, err := r.file.Read(into[:min(int64(len(into)), r.left)])
	r.left -= int64(n)
	if r.sent != nil && n > 0 {
		r.sent(int64(n))
	}
	if errors.Is(err, io.EOF) { // It is shorter than the index says.
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// next opens the next file with bytes to read. The lock is held.
func (r *reader) next() error {
	r.leave()
	for ; r.at < len(r.of.Index.Files) && r.skip >= r.of.Index.Files[r.at].Size; r.at++ {
		r.skip -= r.of.Index.Files[r.at].Size
	}
	if r.at == len(r.of.Index.Files) {
		return io.EOF
	}
	f := r.of.Index.Files[r.at]
	file, err := os.Open(filepath.Join(r.of.Dir, filepath.FromSlash(f.Path)))
	if err != nil {
		return err
	}
	if _, err := file.Seek(r.skip, io.SeekStart); err != nil {
		return errors.Join(err, file.Close())
	}
	r.file, r.left, r.skip = file, f.Size-r.skip, 0
	r.at++
	return nil
}

// leave closes the present file. The lock is held.
func (r *reader) leave() {
	if r.file != nil {
		_ = r.file.Close() // It was read only.
		r.file = nil
	}
}

// Close implements [io.Closer]. Nothing is read afterwards.
func (r *reader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.leave()
	return nil
}
