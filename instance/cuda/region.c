#define _GNU_SOURCE
#include "session.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TRY(call)                       \
	do {                            \
		char *failure_ = (call); \
		if (failure_) return failure_; \
	} while (0)
#define CU(name, call) TRY(driver_failed(name, call))

// The driver's CUmemAllocationProp and CUmemAccessDesc: pinned memory of device 0 that a file
// descriptor can pass on.
typedef struct {
	int type, handles;
	struct {
		int type, id;
	} at;
	void *unused;
	unsigned char flags[8];
} properties;

typedef struct {
	struct {
		int type, id;
	} at;
	int flags;
} access_description;

enum { pinned = 1, by_descriptor = 1, on_device = 1, may_read = 1, may_write = 3 };

static char *region_access(region *r, int flags) {
	access_description a = {{on_device, 0}, flags};
	CU("cuMemSetAccess", cu.allow(r->at, r->bytes, &a, 1));
	return NULL;
}

// region_map gives memory an address. The handle is not needed any more then.
static char *region_map(region *r, unsigned long long handle, int flags) {
	char *failure = driver_failed("cuMemAddressReserve", cu.reserve(&r->at, r->bytes, 0, 0, 0));
	if (!failure) {
		failure = driver_failed("cuMemMap", cu.map(r->at, r->bytes, 0, handle, 0));
		if (failure) {
			cu.unreserve(r->at, r->bytes);
			r->at = 0;
		}
	}
	cu.drop(handle);
	return failure ? failure : region_access(r, flags);
}

// region_make takes at least that many bytes of the device's memory, which other processes can map
// by the descriptor.
char *region_make(engine *e, size_t bytes, region *r) {
	properties p = {.type = pinned, .handles = by_descriptor, .at = {on_device, 0}};
	unsigned long long handle;
	size_t step;
	r->descriptor = -1;
	CU("cuCtxSetCurrent", cu.current(e->context));
	CU("cuMemGetAllocationGranularity", cu.granularity(&step, &p, 0));
	r->bytes = (bytes + step - 1) / step * step;
	CU("cuMemCreate", cu.create(&handle, r->bytes, &p, 0));
	char *failure = driver_failed("cuMemExportToShareableHandle", cu.export(&r->descriptor, handle, by_descriptor, 0));
	if (failure) {
		cu.drop(handle);
		return failure;
	}
	return region_map(r, handle, may_write);
}

// region_import maps memory that another process made, for reading. Its size is known.
char *region_import(engine *e, int descriptor, region *r) {
	unsigned long long handle;
	r->descriptor = descriptor;
	CU("cuCtxSetCurrent", cu.current(e->context));
	CU("cuMemImportFromShareableHandle", cu.import(&handle, (void *)(uintptr_t)descriptor, by_descriptor));
	return region_map(r, handle, may_read);
}

// region_alone takes memory that other processes cannot map.
char *region_alone(engine *e, size_t bytes, region *r) {
	r->descriptor = -1;
	r->bytes = bytes;
	r->alone = 1;
	return device_reserve(e, bytes, &r->at);
}

// region_seal forbids this process to write, once all is there.
char *region_seal(region *r) { return region_access(r, may_read); }

// region_close gives the memory back: the last process that has it frees it.
void region_close(engine *e, region *r) {
	if (r->at && r->alone)
		device_release(e, r->at);
	else if (r->at && !cu.current(e->context)) {
		cu.unmap(r->at, r->bytes);
		cu.unreserve(r->at, r->bytes);
	}
	if (r->descriptor >= 0) close(r->descriptor);
	memset(r, 0, sizeof *r);
	r->descriptor = -1;
}

// region_fill copies to the device, and waits.
char *region_fill(engine *e, session *s, address to, const void *from, size_t bytes) {
	CU("cuCtxSetCurrent", cu.current(e->context));
	CU("cuMemcpyHtoDAsync", cu.to_device(to, from, bytes, s->stream));
	CU("cuStreamSynchronize", cu.wait_stream(s->stream));
	return NULL;
}
