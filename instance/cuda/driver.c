#define _GNU_SOURCE
#include "driver.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

driver_table cu;

static void *library;

static const struct {
	const char *name;
	size_t at;
} functions[] = {
#define F(field, symbol) {symbol, offsetof(driver_table, field)}
	F(init, "cuInit"),
	F(version, "cuDriverGetVersion"),
	F(device, "cuDeviceGet"),
	F(name, "cuDeviceGetName"),
	F(uuid, "cuDeviceGetUuid_v2"),
	F(total, "cuDeviceTotalMem_v2"),
	F(attribute, "cuDeviceGetAttribute"),
	F(flags, "cuDevicePrimaryCtxSetFlags_v2"),
	F(retain, "cuDevicePrimaryCtxRetain"),
	F(release, "cuDevicePrimaryCtxRelease_v2"),
	F(current, "cuCtxSetCurrent"),
	F(free_memory, "cuMemGetInfo_v2"),
	F(allocate, "cuMemAlloc_v2"),
	F(free, "cuMemFree_v2"),
	F(granularity, "cuMemGetAllocationGranularity"),
	F(create, "cuMemCreate"),
	F(drop, "cuMemRelease"),
	F(export, "cuMemExportToShareableHandle"),
	F(import, "cuMemImportFromShareableHandle"),
	F(reserve, "cuMemAddressReserve"),
	F(unreserve, "cuMemAddressFree"),
	F(map, "cuMemMap"),
	F(unmap, "cuMemUnmap"),
	F(allow, "cuMemSetAccess"),
	F(pin, "cuMemHostAlloc"),
	F(unpin, "cuMemFreeHost"),
	F(to_device, "cuMemcpyHtoDAsync_v2"),
	F(to_host, "cuMemcpyDtoHAsync_v2"),
	F(stream, "cuStreamCreate"),
	F(destroy_stream, "cuStreamDestroy_v2"),
	F(wait_stream, "cuStreamSynchronize"),
	F(event, "cuEventCreate"),
	F(destroy_event, "cuEventDestroy_v2"),
	F(record, "cuEventRecord"),
	F(wait_event, "cuEventSynchronize"),
	F(elapsed, "cuEventElapsedTime"),
	F(begin_capture, "cuStreamBeginCapture_v2"),
	F(end_capture, "cuStreamEndCapture"),
	F(instantiate, "cuGraphInstantiateWithFlags"),
	F(launch_graph, "cuGraphLaunch"),
	F(destroy_exec, "cuGraphExecDestroy"),
	F(destroy_graph, "cuGraphDestroy"),
	F(nodes, "cuGraphGetNodes"),
	F(node_type, "cuGraphNodeGetType"),
	F(dependents, "cuGraphNodeGetDependentNodes"),
	F(destroy_node, "cuGraphDestroyNode"),
	F(copy_of, "cuGraphMemcpyNodeGetParams"),
	F(set_copy, "cuGraphMemcpyNodeSetParams"),
	F(allocated, "cuGraphMemAllocNodeGetParams"),
	F(freed, "cuGraphMemFreeNodeGetParams"),
	F(pointer, "cuPointerGetAttribute"),
	F(load, "cuModuleLoadData"),
	F(function, "cuModuleGetFunction"),
	F(launch, "cuLaunchKernel"),
	F(error_name, "cuGetErrorName"),
	F(error_text, "cuGetErrorString"),
#undef F
};

// driver_open finds the functions once. The symbols of one name keep their signature in all
// versions of the driver; newer forms have a suffix.
char *driver_open(const char *path) {
	char *message = NULL;
	if (library) return NULL;
	void *opened = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	if (!opened) {
		if (asprintf(&message, "dlopen: %s", dlerror()) < 0) return strdup("dlopen");
		return message;
	}
	for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
		void *f = dlsym(opened, functions[i].name);
		if (!f) {
			if (asprintf(&message, "%s has no %s", path, functions[i].name) < 0) return strdup("dlsym");
			return message;
		}
		memcpy((char *)&cu + functions[i].at, &f, sizeof f);
	}
	library = opened;
	return NULL;
}

char *driver_failed(const char *call, int result) {
	const char *name = NULL, *text = NULL;
	char *message = NULL;
	if (!result) return NULL;
	if (cu.error_name) cu.error_name(result, &name);
	if (cu.error_text) cu.error_text(result, &text);
	if (asprintf(&message, "%s: %s (%s, %d)", call, text ? text : "unknown error", name ? name : "no name", result) < 0) return strdup(call);
	return message;
}
