// Package shared is memory that two processes map: an instance and the Python process beside
// it, or a body and its shadows. A file without a name holds it; its descriptor goes over a Unix
// socket once ([Pass]), and messages then only name places. It does not know who reads what when:
// see packages python and relay. Begin with [New] and [Memory.Lend].
package shared

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Memory is a memory file that both processes map. It can grow but never shrink: a faulty
// process cannot take away what this one has mapped. Memory lends parts of the file, for
// inputs that are built in it and for outputs that are read from it. Lent memory stays
// mapped when the file grows or closes. It is safe for concurrent use.
type Memory struct {
	file *os.File

	mu   sync.Mutex
	now  *mapping // nil once the file is closed
	lent []*Part  // sorted by from; no two overlap
}

// mapping is the file, mapped up to its size at that time. users counts the lent parts in
// it, plus one while it is the latest mapping.
type mapping struct {
	data  []byte
	users int
}

// Part is a lent part of the file: the bytes [from, end).
type Part struct {
	from, end int64
	in        *mapping
}

// Data are the part's bytes.
func (p *Part) Data() []byte { return p.in.data[p.from:p.end:p.end] }

// From is the part's position in the file.
func (p *Part) From() int64 { return p.from }

// initial is the file's initial size, align the alignment of parts in it, both in bytes.
const (
	initial = 1 << 20
	align   = 64
)

// Aligned is n or the next position in the file where a part may begin.
func Aligned(n int64) int64 { return (n + align - 1) / align * align }

// New makes a file.
func New(name string) (*Memory, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("shared memory: %w", err)
	}
	s := &Memory{file: os.NewFile(uintptr(fd), name)}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK); err != nil {
		return nil, errors.Join(fmt.Errorf("shared memory: %w", err), s.file.Close())
	}
	if err := s.grow(initial); err != nil {
		return nil, errors.Join(err, s.file.Close())
	}
	return s, nil
}

// Open maps a file that another process made with [New]. It owns the file from then on, and
// closes it if it fails. It refuses a file that can shrink.
func Open(file *os.File) (*Memory, error) {
	s := &Memory{file: file}
	seals, err := unix.FcntlInt(file.Fd(), unix.F_GET_SEALS, 0)
	if err == nil && seals&unix.F_SEAL_SHRINK == 0 {
		err = errors.New("its maker can take it away")
	}
	var info os.FileInfo
	if err == nil {
		info, err = file.Stat()
	}
	if err == nil {
		err = s.remap(info.Size())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("shared memory: %w", err), file.Close())
	}
	return s, nil
}

// Lend lends size bytes that are free. It grows the file if there is no room.
func (s *Memory) Lend(size int64) (*Part, error) {
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
		at = Aligned(p.end)
	}
	if at+size > int64(len(s.now.data)) {
		if err := s.grow(max(at+size, 2*int64(len(s.now.data)))); err != nil {
			return nil, err
		}
	}
	return s.keep(at, at+size), nil
}

// Hold lends a part that the other process has written. That process may have grown the
// file.
func (s *Memory) Hold(from, end int64) (*Part, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now == nil {
		return nil, os.ErrClosed
	}
	if from < 0 || from > end {
		return nil, fmt.Errorf("the part from byte %d to %d of shared memory", from, end)
	}
	if end > int64(len(s.now.data)) {
		info, err := s.file.Stat()
		if err != nil {
			return nil, err
		}
		if info.Size() < end {
			return nil, fmt.Errorf("a part ends at byte %d, but the shared memory has %d bytes", end, info.Size())
		}
		if err := s.remap(info.Size()); err != nil {
			return nil, err
		}
	}
	return s.keep(from, end), nil
}

// keep records a lent part. The caller holds mu.
func (s *Memory) keep(from, end int64) *Part {
	p := &Part{from: from, end: end, in: s.now}
	p.in.users++
	at, _ := slices.BinarySearchFunc(s.lent, from, func(p *Part, from int64) int { return int(p.from - from) })
	s.lent = slices.Insert(s.lent, at, p)
	return p
}

// Free takes a part back. Nobody may read or write it any more.
func (s *Memory) Free(p *Part) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lent = slices.DeleteFunc(s.lent, func(q *Part) bool { return q == p })
	_ = p.in.drop() // It fails only for memory that is not mapped.
}

// Taken lists the lent parts as [from, end), sorted by from.
func (s *Memory) Taken() [][2]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := make([][2]int64, 0, len(s.lent))
	for _, p := range s.lent {
		taken = append(taken, [2]int64{p.from, p.end})
	}
	return taken
}

// Find returns the position in the file of data that lies in a lent part. ok is false if
// it does not, or is not aligned.
func (s *Memory) Find(data []byte) (at int64, ok bool) {
	at, ok = s.Where(data)
	return at, ok && at%align == 0
}

// Where is Find for data at any position.
func (s *Memory) Where(data []byte) (at int64, ok bool) {
	if len(data) == 0 {
		return 0, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	first := uintptr(unsafe.Pointer(unsafe.SliceData(data)))
	for _, p := range s.lent {
		whole := p.Data()
		base := uintptr(unsafe.Pointer(unsafe.SliceData(whole)))
		if first >= base && first+uintptr(len(data)) <= base+uintptr(len(whole)) {
			return p.from + int64(first-base), true
		}
	}
	return 0, false
}

// grow sets the file's size in bytes. The caller holds mu.
func (s *Memory) grow(size int64) error {
	if err := s.file.Truncate(size); err != nil {
		return fmt.Errorf("%d MiB of shared memory: %w", size>>20, err)
	}
	return s.remap(size)
}

func (s *Memory) remap(size int64) error {
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

// File is the file, for its descriptor to be sent.
func (s *Memory) File() *os.File { return s.file }

// Close gives the file back. Lent parts stay mapped until they are freed.
func (s *Memory) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	if s.now != nil {
		err = s.now.drop()
		s.now = nil
	}
	return errors.Join(err, s.file.Close())
}
