package onnxruntime

import (
	"fmt"
	"sync"

	ort "github.com/yalue/onnxruntime_go"
)

// arena is the process's bounded allocator, shared by its sessions.
var arena struct {
	sync.Mutex
	limited bool
	limit   int64
}

// limitMemory sets a limit in bytes on the memory of the sessions opened from now on. A
// process has one limit: a second, different one is an error.
func limitMemory(limit int64) error {
	arena.Lock()
	defer arena.Unlock()
	if limit == 0 || arena.limited {
		if limit != 0 && limit != arena.limit {
			return fmt.Errorf("the memory limit is %d bytes, but the process's engines already have one of %d bytes; use the same", limit, arena.limit)
		}
		return nil
	}
	info, err := ort.GetMemoryInfo()
	if err != nil {
		return err
	}
	// The arena grows by the requested size, not to the next power of two: its limit is
	// the function's memory limit, which leaves nothing to waste.
	cfg, err := ort.NewArenaCfg(int(limit), 1, -1, -1)
	if err != nil {
		return plain(err)
	}
	defer cfg.Destroy()
	if err := ort.CreateAndRegisterAllocator(info, cfg); err != nil {
		return plain(err)
	}
	arena.limited, arena.limit = true, limit
	return nil
}

// memoryLimited reports whether sessions must use the bounded allocator.
func memoryLimited() bool {
	arena.Lock()
	defer arena.Unlock()
	return arena.limited
}
