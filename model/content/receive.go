package content

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/faas-infer/faas-infer/filelock"
)

// The routes of a [Receiver]. GET Path answers a [State]. PUT IndexPath brings the index, and PUT BytesPath with
// ?from=N the bytes of all files, one after another, from the Nth on.
const (
	Path      = "/_/content"
	IndexPath = Path + "/index"
	BytesPath = Path + "/bytes"
)

const (
	// stall is how long a sender may send nothing before the connection counts as broken off.
	stall = 30 * time.Second
	// lookPause is the time between two looks for what another process receives.
	lookPause = 50 * time.Millisecond
	// bootFile has the number of the machine's present run: after a crash of the machine files may lack bytes that
	// were not on the disk.
	bootFile = "/proc/sys/kernel/random/boot_id"
	block    = 1 << 20
)

// State says what a receiver needs.
type State struct {
	// Name is the content's.
	Name string `json:"name"`
	// Needs is one of the constants.
	Needs Need `json:"needs"`
	// From is the number of bytes that are here, and Of that of the whole content, for NeedsBytes.
	From int64 `json:"from,omitempty"`
	Of   int64 `json:"of,omitempty"`
}

// Need is what a receiver needs next.
type Need string

// NeedsNothing: the content is here. NeedsOther: another process on the machine receives it, another sender brings it to
// this one, or its files are being read.
const (
	NeedsIndex   Need = "index"
	NeedsBytes   Need = "bytes"
	NeedsNothing Need = "nothing"
	NeedsOther   Need = "other"
)

// Receiver takes a content into a directory that processes of one machine may share: one of them receives, and the
// others wait. Its handler is for the sender. It is safe for concurrent use.
type Receiver struct {
	// Room is asked before the first byte whether there is room for so many more; nil for no question. Its error is the
	// sender's answer. Set it before the handler is served.
	Room func(bytes int64) error

	dir, name string

	// turn holds a token while nothing is received. The fields at, file, got and sha, and changes of index and here,
	// belong to whoever has taken it. No question waits for that one.
	turn chan struct{}
	// begun is closed once Wait takes what a sender brings, and done once the content is here.
	begun chan struct{}
	done  chan struct{}
	// leaving: Wait returns, so nothing more is taken.
	leaving atomic.Bool

	// at is the file that is received, and sha the hash of what is here of it.
	at   int
	file *os.File
	got  int64
	sha  hash.Hash

	mu sync.Mutex
	// lock is held by the process that receives.
	lock  *os.File
	index *Index
	here  int64
}

// NewReceiver returns a receiver of a content into a directory, which must exist.
func NewReceiver(dir, name string) (*Receiver, error) {
	if !IsName(name) {
		return nil, fmt.Errorf("%q is no name of a content: it has 64 hexadecimal digits", name)
	}
	r := &Receiver{
		dir: dir, name: name,
		turn:  make(chan struct{}, 1),
		begun: make(chan struct{}),
		done:  make(chan struct{}),
	}
	r.turn <- struct{}{}
	return r, nil
}

// whole is the content's directory, part what is here of it, and mark says that the whole was verified.
func (r *Receiver) whole() string { return filepath.Join(r.dir, "content-"+r.name) }
func (r *Receiver) part() string  { return filepath.Join(r.dir, ".content-"+r.name) }
func (r *Receiver) mark() string  { return r.whole() + ".boot" }

// Find returns the content's directory if it is here, "" if it is not. Files that were received before the machine's
// last start are read and verified again.
func (r *Receiver) Find() string {
	if _, err := os.Stat(r.whole()); err != nil {
		return ""
	}
	boot, err := os.ReadFile(bootFile)
	if err != nil {
		return ""
	}
	if seen, err := os.ReadFile(r.mark()); err == nil && string(seen) == string(boot) {
		return r.whole()
	}
	i, err := IndexOf(r.whole())
	if err != nil || i.Name() != r.name {
		return ""
	}
	_ = os.WriteFile(r.mark(), boot, 0o644) // Otherwise it is read again next time.
	return r.whole()
}

// Wait returns the content's directory once it is here. Meanwhile the handler must be served. Call it once.
func (r *Receiver) Wait(ctx context.Context) (string, error) {
	lock, err := os.OpenFile(filepath.Join(r.dir, ".content-"+r.name+".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	tick := time.Tick(lookPause)
	for filelock.Try(lock, filelock.Exclusive) != nil {
		select {
		case <-tick:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	if dir := r.Find(); dir != "" { // Another process has received it.
		return dir, nil
	}
	// What lacks bytes is received again. Without the lock it might be what another process has just received.
	if err := os.RemoveAll(r.whole()); err != nil {
		return "", err
	}
	if err := os.MkdirAll(r.part(), 0o755); err != nil {
		return "", err
	}
	r.mu.Lock()
	r.lock = lock
	r.mu.Unlock()
	close(r.begun)
	defer r.close()
	select {
	case <-r.done:
		return r.whole(), nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// Begun is closed once Wait takes what a sender brings.
func (r *Receiver) Begun() <-chan struct{} { return r.begun }

// close ends receiving.
func (r *Receiver) close() {
	r.leaving.Store(true)
	<-r.turn // What is being received ends first: its connection has a deadline.
	r.leaveFile()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lock = nil
}

// leaveFile closes the present file. The turn is taken.
func (r *Receiver) leaveFile() {
	if r.file != nil {
		_ = r.file.Close() // What is not on the disk is received again.
		r.file = nil
	}
}

// State says what is needed now.
func (r *Receiver) State() State {
	s := State{Name: r.name, Needs: NeedsOther}
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.done:
		s.Needs = NeedsNothing
		return s
	default:
	}
	switch {
	case r.lock == nil:
	case r.index == nil:
		s.Needs = NeedsIndex
	default:
		s.Needs, s.From, s.Of = NeedsBytes, r.here, r.index.Bytes()
	}
	return s
}

// ServeHTTP answers the sender.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	var err error
	switch {
	case q.Method == http.MethodGet && q.URL.Path == Path:
	case q.Method == http.MethodPut && q.URL.Path == IndexPath:
		err = r.takeTurn(func() error {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(stall)) // Not every server has deadlines.
			return r.putIndex(q.Body)
		})
	case q.Method == http.MethodPut && q.URL.Path == BytesPath:
		err = r.takeTurn(func() error { return r.putBytes(w, q) })
	default:
		http.NotFound(w, q)
		return
	}
	if errors.Is(err, errTurn) {
		Answer(w, State{Name: r.name, Needs: NeedsOther}) // Waiting helps: refusing would give the instance up.
		return
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		return
	}
	Answer(w, r.State())
}

// Answer tells a sender what is needed.
func Answer(w http.ResponseWriter, s State) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s) // The sender asks again.
}

// errTurn says that another request is being received.
var errTurn = errors.New("another request brings this content")

// takeTurn calls do unless another request is being received or nothing is needed.
func (r *Receiver) takeTurn(do func() error) error {
	select {
	case <-r.turn:
	default:
		return errTurn
	}
	defer func() { r.turn <- struct{}{} }()
	if s := r.State(); s.Needs == NeedsOther || s.Needs == NeedsNothing {
		return nil
	}
	return do()
}

// putIndex takes the index, and looks what is here of its files.
func (r *Receiver) putIndex(body io.Reader) error {
	text, err := io.ReadAll(io.LimitReader(body, maxIndex+1))
	if err != nil {
		return err
	}
	i, err := parseIndex(text, r.name)
	if err != nil {
		return err
	}
	if r.index != nil {
		return nil
	}
	if r.Room != nil {
		if err := r.Room(i.Bytes() - r.present(&i)); err != nil {
			return err
		}
	}
	r.setIndex(&i)
	return r.orAgain(r.openNext())
}

// setIndex begins to receive the files of an index, or waits for another one if it is nil. The turn is taken.
func (r *Receiver) setIndex(i *Index) {
	r.leaveFile()
	r.at, r.got = 0, 0
	r.mu.Lock()
	defer r.mu.Unlock()
	r.index, r.here = i, 0
}

// orAgain makes the sender begin again with the index after an error, which leaves open what is here. The turn is taken.
func (r *Receiver) orAgain(err error) error {
	if err != nil {
		r.setIndex(nil)
	}
	return err
}

// count adds to the bytes that are here. The turn is taken.
func (r *Receiver) count(bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.here += bytes
}

// present is the number of bytes of an index's files that are here from before.
func (r *Receiver) present(i *Index) (bytes int64) {
	for _, f := range i.Files {
		info, err := os.Lstat(filepath.Join(r.part(), filepath.FromSlash(f.Path)))
		if err == nil {
			bytes += min(info.Size(), f.Size)
		}
	}
	return bytes
}

// openNext goes on to the first file that is not whole, and publishes the content after the last one. The turn is taken.
func (r *Receiver) openNext() error {
	for ; r.at < len(r.index.Files); r.at++ {
		f := r.index.Files[r.at]
		path := filepath.Join(r.part(), filepath.FromSlash(f.Path))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			return err
		}
		r.file, r.sha = file, sha256.New()
		if r.got, err = io.Copy(r.sha, file); err != nil {
			return err
		}
		if r.got > f.Size {
			if err := r.again(); err != nil {
				return err
			}
		}
		r.count(r.got)
		if r.got < f.Size {
			return nil
		}
		if err := r.verify(); err != nil {
			return err
		}
		if r.got < f.Size { // It was wrong, and begins again.
			return nil
		}
	}
	if err := r.publish(); err != nil {
		return err
	}
	close(r.done)
	return nil
}

// again begins the present file again. The turn is taken.
func (r *Receiver) again() error {
	r.got, r.sha = 0, sha256.New()
	if err := r.file.Truncate(0); err != nil {
		return err
	}
	_, err := r.file.Seek(0, io.SeekStart)
	return err
}

// verify closes the present file if it is what the index says, and otherwise begins it again. The turn is taken.
func (r *Receiver) verify() error {
	f := r.index.Files[r.at]
	info, err := r.file.Stat()
	if err != nil {
		return err
	}
	if hex.EncodeToString(r.sha.Sum(nil)) == f.Sum && info.Size() == f.Size {
		err := r.file.Close()
		r.file = nil
		return err
	}
	r.count(-r.got)
	return r.again()
}

// publish makes the whole content visible under its name. The turn is taken.
func (r *Receiver) publish() error {
	boot, err := os.ReadFile(bootFile)
	if err != nil {
		return err
	}
	if err := removeOthers(r.part(), r.index); err != nil {
		return err
	}
	if r.present(r.index) < r.index.Bytes() { // Somebody has removed files that had arrived.
		return fmt.Errorf("files that had arrived are gone from %s", r.part())
	}
	if err := os.WriteFile(r.mark(), boot, 0o644); err != nil {
		return err
	}
	return os.Rename(r.part(), r.whole())
}

// removeOthers removes the files that an index does not have.
func removeOthers(dir string, i *Index) error {
	has := map[string]bool{}
	for _, f := range i.Files {
		has[f.Path] = true
	}
	return filepath.WalkDir(dir, func(file string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		below, err := filepath.Rel(dir, file)
		if err == nil && !has[filepath.ToSlash(below)] {
			err = os.Remove(file)
		}
		return err
	})
}

// putBytes takes bytes until the sender has no more.
func (r *Receiver) putBytes(w http.ResponseWriter, q *http.Request) error {
	from, err := strconv.ParseInt(q.URL.Query().Get("from"), 10, 64)
	if now := r.State(); err != nil || now.Needs != NeedsBytes || from != now.From {
		return nil // The answer says from where.
	}
	connection := http.NewResponseController(w)
	buffer := make([]byte, block)
	for {
		_ = connection.SetReadDeadline(time.Now().Add(stall)) // Not every server has deadlines.
		n, err := q.Body.Read(buffer)
		if failed := r.write(buffer[:n]); failed != nil {
			return failed
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case r.State().Needs == NeedsNothing:
			return nil
		case r.leaving.Load():
			return errors.New("the instance is being stopped")
		case err != nil:
			return fmt.Errorf("read what the provider sends: %w", err)
		}
	}
}

// write appends bytes to the content's files. The turn is taken.
func (r *Receiver) write(bytes []byte) error {
	for len(bytes) > 0 && r.at < len(r.index.Files) && r.file != nil {
		f := r.index.Files[r.at]
		n := min(int64(len(bytes)), f.Size-r.got)
		// At its place: a write that failed on a full disk may have written a part.
		if _, err := r.file.WriteAt(bytes[:n], r.got); err != nil {
			return fmt.Errorf("write the model below %s: %w", r.dir, err)
		}
		r.sha.Write(bytes[:n])
		bytes, r.got = bytes[n:], r.got+n
		r.count(n)
		if r.got < f.Size {
			continue
		}
		if err := r.verify(); err != nil {
			return r.orAgain(err)
		}
		if r.file != nil {
			return fmt.Errorf("the file %s arrived with another SHA-256 than the index says", f.Path)
		}
		r.at++
		if err := r.openNext(); err != nil {
			return r.orAgain(err)
		}
	}
	return nil
}

// Below returns the place of a file of the content whose path below another directory is given, unchanged if it is
// not there.
func Below(whole, other, file string) string {
	if rest, is := strings.CutPrefix(file, other+"/"); is {
		return filepath.Join(whole, rest)
	}
	return file
}
