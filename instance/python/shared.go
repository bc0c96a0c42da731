package python

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// shared is a file in memory that both processes map. It can grow and never
// shrinks, so that no fault of the other process takes away what is mapped here.
// Parts of it are lent: inputs that are put together in it, and outputs that are
// read where the other process has written them. Lent memory stays mapped, though
// the file grows or is closed. It is safe for concurrent use.
type shared struct {
	file *os.File

	mu   sync.Mutex
	now  *mapping // nil once it is closed
	lent []*part  // by where they begin; no two overlap
}

// mapping is the file, mapped as far as it reached then. Its users are what is lent
// of it and, as long as it is the latest, the file.
type mapping struct {
	data  []byte
	users int
}

// part is a lent part of the file: bytes from up to end.
type part struct {
	from, end int64
	in        *mapping
}

func (p *part) data() []byte { return p.in.data[p.from:p.end:p.end] }

// leastShared is the file's size at first, in bytes; align is that of tensors in it.
const (
	leastShared = 1 << 20
	align       = 64
)

func aligned(n int64) int64 { return (n + align - 1) / align * align }

func newShared(name string) (*shared, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("shared memory: %w", err)
	}
	s := &shared{file: os.NewFile(uintptr(fd), name)}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK); err != nil {
		return nil, errors.Join(fmt.Errorf("shared memory: %w", err), s.file.Close())
	}
	if err := s.grow(leastShared); err != nil {
		return nil, errors.Join(err, s.file.Close())
	}
	return s, nil
}

// lend finds room that nobody else has, and makes it where there is none.
func (s *shared) lend(size int64) (*part, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now == nil {
		return nil, os.ErrClosed
	}
	var at int64
	for _, p := range s.lent {
		if at+size <= p.from {
			break
		}
		at = aligned(p.end)
	}
	if at+size > int64(len(s.now.data)) {
		if err := s.grow(max(at+size, 2*int64(len(s.now.data)))); err != nil {
			return nil, err
		}
	}
	return s.keep(at, at+size), nil
}

// hold lends a part that the other process has written, which may have made the
// file larger.
func (s *shared) hold(from, end int64) (*part, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now == nil {
		return nil, os.ErrClosed
	}
	if end > int64(len(s.now.data)) {
		info, err := s.file.Stat()
		if err != nil {
			return nil, err
		}
		if info.Size() < end {
			return nil, fmt.Errorf("the answer is said to have %d bytes, and there are %d", end, info.Size())
		}
		if err := s.remap(info.Size()); err != nil {
			return nil, err
		}
	}
	return s.keep(from, end), nil
}

// keep notes that a part is lent. The lock is held.
func (s *shared) keep(from, end int64) *part {
	p := &part{from: from, end: end, in: s.now}
	p.in.users++
	at, _ := slices.BinarySearchFunc(s.lent, from, func(p *part, from int64) int { return int(p.from - from) })
	s.lent = slices.Insert(s.lent, at, p)
	return p
}

// free takes a part back; nobody may look at it any more.
func (s *shared) free(p *part) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lent = slices.DeleteFunc(s.lent, func(q *part) bool { return q == p })
	_ = p.in.drop() // It fails for what is not mapped only.
}

// taken lists what is lent, as [from, end) by where it begins.
func (s *shared) taken() [][2]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := make([][2]int64, 0, len(s.lent))
	for _, p := range s.lent {
		taken = append(taken, [2]int64{p.from, p.end})
	}
	return taken
}

// find tells where in the file data is that lies in a lent part.
func (s *shared) find(data []byte) (at int64, ok bool) {
	if len(data) == 0 {
		return 0, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	first := uintptr(unsafe.Pointer(unsafe.SliceData(data)))
	for _, p := range s.lent {
		whole := p.data()
		base := uintptr(unsafe.Pointer(unsafe.SliceData(whole)))
		if first >= base && first+uintptr(len(data)) <= base+uintptr(len(whole)) {
			at = p.from + int64(first-base)
			return at, at%align == 0
		}
	}
	return 0, false
}

// grow makes the file so large. The lock is held.
func (s *shared) grow(size int64) error {
	if err := s.file.Truncate(size); err != nil {
		return fmt.Errorf("%d MiB of shared memory: %w", size>>20, err)
	}
	return s.remap(size)
}

func (s *shared) remap(size int64) error {
	data, err := unix.Mmap(int(s.file.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map %d MiB of shared memory: %w", size>>20, err)
	}
	before := s.now
	s.now = &mapping{data: data, users: 1}
	if before == nil {
		return nil
	}
	return before.drop()
}

// drop tells that one user less looks at the mapping.
func (m *mapping) drop() error {
	if m.users--; m.users > 0 {
		return nil
	}
	return unix.Munmap(m.data)
}

func (s *shared) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	if s.now != nil {
		err = s.now.drop()
		s.now = nil
	}
	return errors.Join(err, s.file.Close())
}

// put tells where tensors are in the file, which those that are not there yet are
// copied into; done frees the copies. size is how far they reach.
func (s *shared) put(tensors []tensor.Tensor) (places []placed, size int64, done func(), err error) {
	var copies []tensor.Tensor
	var at []int64
	var room int64
	for _, t := range tensors {
		place := placed{Info: tensor.Info{Name: t.Name, Type: t.Type, Shape: t.Shape}}
		var there bool
		if place.At, there = s.find(t.Data); !there {
			copies, at = append(copies, t), append(at, room)
			place.At = -1
			room += aligned(int64(len(t.Data)))
		}
		places = append(places, place)
	}
	lent, err := s.lend(room)
	if err != nil {
		return nil, 0, nil, err
	}
	data, next := lent.data(), 0
	for i := range places {
		if places[i].At < 0 {
			copy(data[at[next]:], copies[next].Data)
			places[i].At = lent.from + at[next]
			next++
		}
		size = max(size, places[i].At+int64(len(tensors[i].Data)))
	}
	return places, size, func() { s.free(lent) }, nil
}
