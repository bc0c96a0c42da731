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

// shared is a memory file that both processes map. It can grow but never shrink: a faulty
// process cannot take away what this one has mapped. shared lends parts of the file, for
// inputs that are built in it and for outputs that are read from it. Lent memory stays
// mapped when the file grows or closes. It is safe for concurrent use.
type shared struct {
	file *os.File

	mu   sync.Mutex
	now  *mapping // nil once the file is closed
	lent []*part  // sorted by from; no two overlap
}

// mapping is the file, mapped up to its size at that time. users counts the lent parts in
// it, plus one while it is the latest mapping.
type mapping struct {
	data  []byte
	users int
}

// part is a lent part of the file: the bytes [from, end).
type part struct {
	from, end int64
	in        *mapping
}

func (p *part) data() []byte { return p.in.data[p.from:p.end:p.end] }

// initialShared is the file's initial size, align the alignment of tensors in it, both in
// bytes.
const (
	initialShared = 1 << 20
	align         = 64
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
	if err := s.grow(initialShared); err != nil {
		return nil, errors.Join(err, s.file.Close())
	}
	return s, nil
}

// lend lends size bytes that are free. It grows the file if there is no room.
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

// hold lends a part that the other process has written. That process may have grown the
// file.
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
			return nil, fmt.Errorf("the answer ends at byte %d, but the shared memory has %d bytes", end, info.Size())
		}
		if err := s.remap(info.Size()); err != nil {
			return nil, err
		}
	}
	return s.keep(from, end), nil
}

// keep records a lent part. The caller holds mu.
func (s *shared) keep(from, end int64) *part {
	p := &part{from: from, end: end, in: s.now}
	p.in.users++
	at, _ := slices.BinarySearchFunc(s.lent, from, func(p *part, from int64) int { return int(p.from - from) })
	s.lent = slices.Insert(s.lent, at, p)
	return p
}

// free takes a part back. Nobody may read or write it any more.
func (s *shared) free(p *part) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lent = slices.DeleteFunc(s.lent, func(q *part) bool { return q == p })
	_ = p.in.drop() // It fails only for memory that is not mapped.
}

// taken lists the lent parts as [from, end), sorted by from.
func (s *shared) taken() [][2]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := make([][2]int64, 0, len(s.lent))
	for _, p := range s.lent {
		taken = append(taken, [2]int64{p.from, p.end})
	}
	return taken
}

// find returns the position in the file of data that lies in a lent part. ok is false if
// it does not, or is not aligned.
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

// grow sets the file's size in bytes. The caller holds mu.
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

// drop removes one user of the mapping. It unmaps the memory after the last.
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

// put returns the tensors' places in the file. It copies those that are not in the file
// yet; done frees the copies. size is the end of the last tensor.
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
