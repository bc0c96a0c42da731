package gpu

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

typedef int result;
typedef void *handle;
typedef unsigned long long address;

// Eight chains of multiply-adds per thread: no unit waits for a result. The kernel stores
// the sum; otherwise the compiler would remove the computation.
static const char program[] =
	".version 6.0\n.target sm_70\n.address_size 64\n"
	".visible .entry burn(.param .u64 out, .param .u32 rounds)\n{\n"
	".reg .pred %p;\n.reg .u32 %i, %n;\n.reg .u64 %o;\n.reg .f32 %b, %c, %a<8>;\n"
	"ld.param.u64 %o, [out];\ncvta.to.global.u64 %o, %o;\nld.param.u32 %n, [rounds];\n"
	"mov.f32 %b, 0f3F7FBE77;\nmov.f32 %c, 0f3A83126F;\nmov.u32 %i, 0;\n"
	"mov.f32 %a0, 0f3F800000;\nmov.f32 %a1, 0f3F800000;\nmov.f32 %a2, 0f3F800000;\nmov.f32 %a3, 0f3F800000;\n"
	"mov.f32 %a4, 0f3F800000;\nmov.f32 %a5, 0f3F800000;\nmov.f32 %a6, 0f3F800000;\nmov.f32 %a7, 0f3F800000;\n"
	"again:\n"
	"fma.rn.f32 %a0, %a0, %b, %c;\nfma.rn.f32 %a1, %a1, %b, %c;\nfma.rn.f32 %a2, %a2, %b, %c;\nfma.rn.f32 %a3, %a3, %b, %c;\n"
	"fma.rn.f32 %a4, %a4, %b, %c;\nfma.rn.f32 %a5, %a5, %b, %c;\nfma.rn.f32 %a6, %a6, %b, %c;\nfma.rn.f32 %a7, %a7, %b, %c;\n"
	"add.u32 %i, %i, 1;\nsetp.lt.u32 %p, %i, %n;\n@%p bra again;\n"
	"add.f32 %a0, %a0, %a1;\nadd.f32 %a2, %a2, %a3;\nadd.f32 %a4, %a4, %a5;\nadd.f32 %a6, %a6, %a7;\n"
	"add.f32 %a0, %a0, %a2;\nadd.f32 %a4, %a4, %a6;\nadd.f32 %a0, %a0, %a4;\n"
	"st.global.f32 [%o], %a0;\nret;\n}\n";

static struct {
	result (*init)(unsigned);
	result (*device)(int *, int);
	result (*attribute)(int *, int, int);
	result (*retain)(handle *, int);
	result (*current)(handle);
	result (*load)(handle *, const void *);
	result (*function)(handle *, handle, const char *);
	result (*allocate)(address *, size_t);
	result (*launch)(handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, handle, void **, void **);
	result (*synchronise)(void);
	result (*describe)(result, const char **);
} cu;

static handle kernel;
static address out;

// find sets *to to a function of the driver. It returns the name if there is no such
// function, otherwise NULL.
static const char *find(handle library, const char *name, void *to) {
	*(void **)to = dlsym(library, name);
	return *(void **)to ? NULL : name;
}

// load opens the driver's library. It returns the name of what is missing, or NULL.
static const char *load(void) {
	handle l = dlopen("libcuda.so.1", RTLD_NOW);
	const char *missing = NULL;
	if (!l) return "libcuda.so.1";
	if ((missing = find(l, "cuInit", &cu.init))) return missing;
	if ((missing = find(l, "cuDeviceGet", &cu.device))) return missing;
	if ((missing = find(l, "cuDeviceGetAttribute", &cu.attribute))) return missing;
	if ((missing = find(l, "cuDevicePrimaryCtxRetain", &cu.retain))) return missing;
	if ((missing = find(l, "cuCtxSetCurrent", &cu.current))) return missing;
	if ((missing = find(l, "cuModuleLoadData", &cu.load))) return missing;
	if ((missing = find(l, "cuModuleGetFunction", &cu.function))) return missing;
	if ((missing = find(l, "cuMemAlloc_v2", &cu.allocate))) return missing;
	if ((missing = find(l, "cuLaunchKernel", &cu.launch))) return missing;
	if ((missing = find(l, "cuCtxSynchronize", &cu.synchronise))) return missing;
	return find(l, "cuGetErrorString", &cu.describe);
}

// prepare makes the kernel on device 0. It sets *sms to the number of multiprocessors that
// this process may use (attribute 16), and *step to the failed call if there is an error.
static result prepare(int *sms, const char **step) {
	int device;
	handle context, module;
	result r;
	*step = "cuInit";
	if ((r = cu.init(0))) return r;
	*step = "cuDeviceGet";
	if ((r = cu.device(&device, 0))) return r;
	*step = "cuDevicePrimaryCtxRetain";
	if ((r = cu.retain(&context, device))) return r;
	*step = "cuCtxSetCurrent";
	if ((r = cu.current(context))) return r;
	*step = "cuDeviceGetAttribute";
	if ((r = cu.attribute(sms, 16, device))) return r;
	*step = "cuModuleLoadData";
	if ((r = cu.load(&module, program))) return r;
	*step = "cuModuleGetFunction";
	if ((r = cu.function(&kernel, module, "burn"))) return r;
	*step = "cuMemAlloc";
	return cu.allocate(&out, 256);
}

// burn runs the kernel once and waits for its end.
static result burn(unsigned blocks, unsigned threads, unsigned rounds) {
	void *parameters[] = {&out, &rounds};
	result r = cu.launch(kernel, blocks, 1, 1, threads, 1, 1, 0, NULL, parameters, NULL);
	return r ? r : cu.synchronise();
}

static const char *describe(result r) {
	const char *text = NULL;
	return cu.describe && cu.describe(r, &text) == 0 && text ? text : "unknown error";
}
*/
import "C"

import (
	"errors"
	"fmt"
	"runtime"
)

// ErrNoDriver is wrapped by errors if the machine has no CUDA driver.
var ErrNoDriver = errors.New("no CUDA driver")

// Burner computes on the first GPU that this process sees. Only the goroutine that opened
// it may use it.
type Burner struct {
	// SMs is the number of multiprocessors that the process may use.
	SMs int
	// Blocks is the number of thread blocks of one run.
	Blocks int
}

const (
	threads = 256
	// chains is the number of multiply-adds of a thread in a round; each is two
	// operations.
	chains = 8
	// blocks fill the largest GPU several times over. All shares get the same work, so
	// it takes longer on a smaller one.
	blocks = 16 * 132
)

// OpenBurner makes a Burner. It locks the goroutine to its thread, which owns CUDA's
// context.
func OpenBurner() (*Burner, error) {
	runtime.LockOSThread()
	if missing := C.load(); missing != nil {
		return nil, fmt.Errorf("%w: there is no %s", ErrNoDriver, C.GoString(missing))
	}
	var sms C.int
	var step *C.char
	if r := C.prepare(&sms, &step); r != 0 {
		return nil, failed(C.GoString(step), r)
	}
	return &Burner{SMs: int(sms), Blocks: blocks}, nil
}

func failed(step string, r C.result) error {
	return fmt.Errorf("%s: %s (CUDA error %d)", step, C.GoString(C.describe(r)), int(r))
}

// Run does a number of rounds and returns the number of floating-point operations.
func (b *Burner) Run(rounds int) (operations float64, err error) {
	if r := C.burn(C.uint(b.Blocks), threads, C.uint(rounds)); r != 0 {
		return 0, failed("run the kernel", r)
	}
	return 2 * chains * threads * float64(b.Blocks) * float64(rounds), nil
}
